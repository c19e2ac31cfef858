# RP-004. A running job meets a transient error for the fourth time: it becomes a dead letter.

# Step by step: failed comes only after dlq_recorded, and the job leads to its letter.
enqueue  j1  trace rp-004                   -> queued
claim    j1  by w1  start                   -> running
settle   j1  epoch 1  failed SMTP_BUSY      -> retry_scheduled  retry_count 1  dlq none
pass     1s
claim    j1  by w1  start                   -> running
settle   j1  epoch 2  failed SMTP_BUSY      -> retry_scheduled  retry_count 2
pass     2s
claim    j1  by w1  start                   -> running
settle   j1  epoch 3  failed SMTP_BUSY      -> retry_scheduled  retry_count 3
pass     4s
claim    j1  by w1  start                   -> running          attempt 4
settle   j1  epoch 4  failed SMTP_BUSY      -> failed           retry_count 3  error SMTP_BUSY  dlq open
event    j1  {"to": "failed", "fact": {"type": "buried", "dlq_id": "letter of j1", "began_in": "running"}}
expect   j1                                 -> failed           dlq_why retries_exhausted  dlq_began_in running  trace rp-004
replay   j1                                 -> queued running retrying running retrying running retrying running dlq_pending dlq_recorded failed

# By the development call: the fourth transient failure is the last.
enqueue  j1  trace rp-004                   -> queued
run      j1  transient                      -> retry_scheduled  retry_count 1
run      j1  transient                      -> retry_scheduled  retry_count 2
run      j1  transient                      -> retry_scheduled  retry_count 3
run      j1  transient                      -> failed           retry_count 3  dlq open
replay   j1                                 -> queued running retrying running retrying running retrying running dlq_pending dlq_recorded failed

# By the development call: a forced failure goes to the dead letters at once.
enqueue  j1  trace rp-004                   -> queued
run      j1  failed                         -> failed           retry_count 0  dlq open  dlq_why non_retryable_error
replay   j1                                 -> queued running dlq_pending dlq_recorded failed

# By the development call: a forced failure out of retrying.
enqueue  j1  trace rp-004                   -> queued
run      j1  transient                      -> retry_scheduled  retry_count 1
run      j1  failed                         -> failed           retry_count 1  dlq open
replay   j1                                 -> queued running retrying running dlq_pending dlq_recorded failed
