# Every edge of the run state machine, with the event that it writes. A run that is claimed and not yet
# started is still queued there, so an edge into running ends with the event `started`.

# queued -> running: worker_claim.
enqueue  j1                                 -> queued      attempt 1  next_retry_in none
event    j1  {"job_id": "j1", "number": 1, "from": null, "to": "queued", "attempt": 1, "actor": "user:ops"}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": null, "status": "queued", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": null, "actor": "user:ops"}
claim    j1  by w1                          -> dispatched  epoch 1
event    j1  {"cause": "worker_claim", "from": "queued", "to": "dispatched", "attempt": 1, "started": false, "actor": "worker:w1"}
start    j1  epoch 1                        -> running     next_retry_in none
event    j1  {"cause": "started", "from": "dispatched", "to": "running", "attempt": 1, "actor": "worker:w1"}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "queued", "status": "running", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": null, "actor": "worker:w1"}

# queued -> cancelled: cancel_command.
enqueue  j1                                 -> queued
cancel   j1  by ann  because wrong address  -> cancelled   error none  next_retry_in none
event    j1  {"cause": "cancel_command", "from": "queued", "to": "cancelled", "attempt": 1, "actor": "user:ann", "fact": {"reason": "wrong address"}}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "queued", "status": "cancelled", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": null, "actor": "user:ann"}

# running -> succeeded: completed.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
settle   j1  epoch 1  succeeded             -> succeeded   error none  next_retry_in none
event    j1  {"cause": "completed", "from": "running", "to": "succeeded", "attempt": 1, "actor": "worker:w1"}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "running", "status": "succeeded", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": null, "actor": "worker:w1"}

# running -> failed: non_retryable_error. The event carries the state in which the way began.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
settle   j1  epoch 1  failed BAD_INPUT final  -> failed    error BAD_INPUT  next_retry_in none
event    j1  {"from": "dlq_recorded", "to": "failed", "attempt": 1, "actor": "worker:w1", "fact": {"began_in": "running", "why": "non_retryable_error", "failure": {"code": "BAD_INPUT"}}}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "running", "status": "failed", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": "BAD_INPUT", "actor": "worker:w1"}
events   j1                                 -> enqueued worker_claim started non_retryable_error dlq_written dlq_closed

# running -> retry_scheduled: retryable_error. The event has the attempt that failed.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
settle   j1  epoch 1  failed SMTP_BUSY      -> retry_scheduled  error SMTP_BUSY  next_retry_in 1s
event    j1  {"cause": "retryable_error", "from": "running", "to": "retry_scheduled", "attempt": 1, "retry_count": 1, "actor": "worker:w1", "fact": {"next_retry_at": "+1s", "failure": {"code": "SMTP_BUSY"}}}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "running", "status": "retry_scheduled", "attempt": 1, "idempotency_key": "j1", "next_retry_at": "+1s", "error_code": "SMTP_BUSY", "actor": "worker:w1"}

# running -> interrupted: process_restart.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
die      w1                                 -> interrupted  next_retry_in none
event    j1  {"cause": "process_restart", "from": "running", "to": "interrupted", "attempt": 1, "actor": "recovery"}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "running", "status": "interrupted", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": null, "actor": "recovery"}

# running -> interrupted as well when nobody can prove that the process died, and its lease runs out.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
pass     30s                                -> interrupted
event    j1  {"cause": "lease_expired", "from": "running", "to": "interrupted", "attempt": 1, "actor": "recovery"}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "running", "status": "interrupted", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": null, "actor": "recovery"}

# running -> cancelled: cancel_command, by the handler that was asked.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
cancel   j1  by ann                         -> running     cancel requested
event    j1  {"cause": "cancel_requested", "from": "running", "to": "running", "actor": "user:ann"}
settle   j1  epoch 1  cancelled             -> cancelled   next_retry_in none
event    j1  {"cause": "cancel_command", "from": "running", "to": "cancelled", "attempt": 1, "actor": "worker:w1"}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "running", "status": "cancelled", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": null, "actor": "worker:w1"}

# running -> cancelled: cancel_command, by force.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
cancel   j1  force  by ann                  -> cancelled
event    j1  {"cause": "cancel_command", "from": "running", "to": "cancelled", "attempt": 1, "actor": "user:ann"}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "running", "status": "cancelled", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": null, "actor": "user:ann"}

# retry_scheduled -> running: retry_due. It is the next attempt, and next_retry_at is cleared.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
settle   j1  epoch 1  failed SMTP_BUSY      -> retry_scheduled  attempt 1
pass     1s
claim    j1  by w2                          -> dispatched  attempt 2  next_retry_in none
event    j1  {"cause": "retry_due", "from": "retry_scheduled", "to": "dispatched", "attempt": 2, "started": true, "actor": "worker:w2"}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "retry_scheduled", "status": "running", "attempt": 2, "idempotency_key": "j1", "next_retry_at": null, "error_code": null, "actor": "worker:w2"}
start    j1  epoch 2                        -> running     attempt 2  next_retry_in none
event    j1  {"cause": "started", "from": "dispatched", "to": "running", "attempt": 2, "actor": "worker:w2"}

# retry_scheduled -> cancelled: cancel_command.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
settle   j1  epoch 1  failed SMTP_BUSY      -> retry_scheduled
cancel   j1  by ann                         -> cancelled   next_retry_in none
event    j1  {"cause": "cancel_command", "from": "retry_scheduled", "to": "cancelled", "attempt": 1, "actor": "user:ann"}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "retry_scheduled", "status": "cancelled", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": null, "actor": "user:ann"}

# interrupted -> running: recovery_resume. It is the same attempt.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
die      w1                                 -> interrupted
claim    j1  by w2                          -> dispatched  attempt 1  epoch 2
event    j1  {"cause": "recovery_resume", "from": "interrupted", "to": "dispatched", "attempt": 1, "actor": "worker:w2"}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "interrupted", "status": "running", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": null, "actor": "worker:w2"}
start    j1  epoch 2                        -> running     attempt 1  next_retry_in none

# interrupted -> failed: recovery_abort.
enqueue  j1  max_interruptions 1            -> queued
claim    j1  by w1  start                   -> running
die      w1                                 -> failed      error INTERRUPTED_TOO_OFTEN  dlq open  next_retry_in none
event    j1  {"to": "failed", "attempt": 1, "actor": "recovery", "fact": {"began_in": "interrupted", "why": "recovery_abort", "failure": {"code": "INTERRUPTED_TOO_OFTEN"}}}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "interrupted", "status": "failed", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": "INTERRUPTED_TOO_OFTEN", "actor": "recovery"}
events   j1                                 -> enqueued worker_claim started process_restart recovery_abort dlq_written dlq_closed

# interrupted -> cancelled: cancel_command.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
die      w1                                 -> interrupted
cancel   j1  by ann                         -> cancelled
event    j1  {"cause": "cancel_command", "from": "interrupted", "to": "cancelled", "attempt": 1, "actor": "user:ann"}
event    j1  runs  {"run_id": "j1", "task_id": "j1", "previous_status": "interrupted", "status": "cancelled", "attempt": 1, "idempotency_key": "j1", "next_retry_at": null, "error_code": null, "actor": "user:ann"}
