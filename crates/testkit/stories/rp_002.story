# RP-002. A running job meets a transient error once, and succeeds when it is tried again.

# Step by step: retry_count is 1, and the job keeps its id.
enqueue  j1  trace rp-002                   -> queued
claim    j1  by w1  start                   -> running          epoch 1  execution_key j1+0
settle   j1  epoch 1  failed SMTP_BUSY      -> retry_scheduled  retry_count 1  attempt 1  next_retry_in 1000ms
pass     1s                                 -> retry_scheduled  next_retry_in 0ms
claim    j1  by w1                          -> dispatched       epoch 2  attempt 2  execution_key j1+1
start    j1  epoch 2                        -> running          next_retry_in none
settle   j1  epoch 2  succeeded             -> succeeded        retry_count 1  error none  trace rp-002
replay   j1                                 -> queued running retrying running succeeded
events   j1                                 -> enqueued worker_claim started retryable_error retry_due started completed

# By the development call: a transient failure, then a success, without waiting for the retry's time.
enqueue  j1  trace rp-002                   -> queued
run      j1  transient                      -> retry_scheduled  retry_count 1
run      j1  succeeded                      -> succeeded        retry_count 1  trace rp-002
replay   j1                                 -> queued running retrying running succeeded
