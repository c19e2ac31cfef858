# RP-003. A running job meets a transient error three times in a row, and then succeeds.

# Step by step: retry_count is 3, and each retry waits twice as long.
enqueue  j1  trace rp-003                   -> queued
claim    j1  by w1  start                   -> running          execution_key j1+0
settle   j1  epoch 1  failed SMTP_BUSY      -> retry_scheduled  retry_count 1  next_retry_in 1000ms
pass     1s
claim    j1  by w1  start                   -> running          epoch 2  execution_key j1+1
settle   j1  epoch 2  failed SMTP_BUSY      -> retry_scheduled  retry_count 2  next_retry_in 2000ms
pass     2s
claim    j1  by w1  start                   -> running          epoch 3  execution_key j1+2
settle   j1  epoch 3  failed SMTP_BUSY      -> retry_scheduled  retry_count 3  next_retry_in 4000ms
pass     4s
claim    j1  by w1  start                   -> running          epoch 4  execution_key j1+3
settle   j1  epoch 4  succeeded             -> succeeded        retry_count 3  attempt 4  dlq none  trace rp-003
replay   j1                                 -> queued running retrying running retrying running retrying running succeeded

# By the development call.
enqueue  j1  trace rp-003                   -> queued
run      j1  transient                      -> retry_scheduled  retry_count 1
run      j1  transient                      -> retry_scheduled  retry_count 2
run      j1  transient                      -> retry_scheduled  retry_count 3
run      j1  succeeded                      -> succeeded        retry_count 3
replay   j1                                 -> queued running retrying running retrying running retrying running succeeded
