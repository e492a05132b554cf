"""Jobs of a SLURM sweep that end without a result: cancelled, out of memory, or on a failed node."""

from typing import Any

from hydra.core.utils import JobReturn, JobStatus

from rdm.app.sweeps import JobResult, Journal

SECONDS_BETWEEN_CHECKS = 60  # at most; submitit's 600 would report a cancelled job ten minutes later


def report_lost_jobs(journal: Journal) -> None:
    """Make submitit report a job without a result as failed and wait for the others, instead of raising an error."""
    from submitit.core.utils import UncompletedJobError
    from submitit.slurm.slurm import SlurmInfoWatcher, SlurmJob

    wait_for_results = SlurmJob.results

    def results(job: Any) -> list[Any]:
        try:
            return wait_for_results(job)
        except UncompletedJobError as error:
            overrides, _, number, *_ = job.submission().args
            reason = str(error).splitlines()[-1] if job.paths.result_pickle.exists() else f"no result ({job.state})"
            result = JobResult(failure=f"SLURM job {job.job_id}: {reason}; log: {job.paths.stderr}")
            if number not in {line["job"] for line in journal.jobs()}:
                journal.record(number, overrides, result)
            return [JobReturn(overrides=overrides, status=JobStatus.COMPLETED, _return_value=result)]

    SlurmJob.results = results  # type: ignore[method-assign, assignment]
    SlurmJob.watcher = SlurmInfoWatcher(delay_s=SECONDS_BETWEEN_CHECKS)
