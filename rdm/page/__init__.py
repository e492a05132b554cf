"""The decoding page: one HTML file that shows how texts were decoded, iteration by iteration."""
