"""The decoding page: one HTML file that shows how texts came about, iteration by iteration."""
