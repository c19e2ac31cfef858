# RP-001. A worker takes a queued job, and the job succeeds.

# Step by step: queued, running, succeeded.
enqueue  j1  trace rp-001                   -> queued      retry_count 0  trace rp-001
claim    j1  by w1                          -> dispatched  epoch 1  attempt 1  execution_key j1+0
start    j1  epoch 1                        -> running     attempt_id j1:1
settle   j1  epoch 1  succeeded             -> succeeded   retry_count 0  error none  dlq none
replay   j1                                 -> queued running succeeded
events   j1                                 -> enqueued worker_claim started completed
expect   j1                                 -> succeeded   trace rp-001  attempts 1  attempt_state SUCCEEDED

# By the development call, from queued.
enqueue  j1  trace rp-001                   -> queued
run      j1  succeeded                      -> succeeded   retry_count 0  trace rp-001
replay   j1                                 -> queued running succeeded

# By the development call, from running: it settles under the epoch that runs.
enqueue  j1  trace rp-001                   -> queued
claim    j1  by w1  start                   -> running     epoch 1
run      j1  succeeded                      -> succeeded   epoch 1  retry_count 0
replay   j1                                 -> queued running succeeded
