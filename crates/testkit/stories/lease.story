# Leases: who may write. An epoch that does not hold the lease changes nothing.

# A worker that lost its lease cannot settle.
enqueue  j1                                 -> queued
claim    j1  by w1                          -> dispatched   epoch 1  owner w1  lease_in 30s
start    j1  epoch 1                        -> running
pass     60s                                -> interrupted  owner none  lease_in none
claim    j1  by w2                          -> dispatched   epoch 2  owner w2
settle   j1  epoch 1  succeeded             -> refused STALE_ATTEMPT

# A stale epoch is refused before anything else is looked at.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running      epoch 1
die      w1                                 -> interrupted
claim    j1  by w2  start                   -> running      epoch 2
start    j1  epoch 1                        -> refused STALE_ATTEMPT
renew    j1  epoch 1                        -> refused STALE_ATTEMPT
release  j1  epoch 1                        -> refused STALE_ATTEMPT
checkpoint j1  epoch 1  {"done": 3}         -> refused STALE_ATTEMPT
wait     j1  epoch 1  time 10s              -> refused STALE_ATTEMPT
settle   j1  epoch 1  succeeded             -> refused STALE_ATTEMPT
settle   j1  epoch 1  failed SMTP_BUSY      -> refused STALE_ATTEMPT
settle   j1  epoch 1  cancelled             -> refused STALE_ATTEMPT
settle   j1  epoch 3  succeeded             -> refused STALE_ATTEMPT
settle   j1  epoch 0  succeeded             -> refused STALE_ATTEMPT
expect   j1                                 -> running      epoch 2  lease_count 2
settle   j1  epoch 2  succeeded             -> succeeded

# A job that nobody holds has no epoch that may write, not even its last one.
enqueue  j1                                 -> queued
settle   j1  epoch 0  succeeded             -> refused STALE_ATTEMPT
claim    j1  by w1  start                   -> running      epoch 1
die      w1                                 -> interrupted
settle   j1  epoch 1  succeeded             -> refused STALE_ATTEMPT
start    j1  epoch 1                        -> refused STALE_ATTEMPT

# A settle after the lease's time is accepted as long as nobody expired it.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running      epoch 1
pass     31s  unnoticed                     -> running      lease_in 0s
settle   j1  epoch 1  succeeded             -> succeeded

# So is a renewal, and the lease goes on from there.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running      epoch 1
pass     31s  unnoticed                     -> running
renew    j1  epoch 1                        -> running      lease_in 30s
pass     29s                                -> running
settle   j1  epoch 1  succeeded             -> succeeded

# A settle after the expiry is refused, also when nobody else has the job yet.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running      epoch 1
pass     30s                                -> interrupted
settle   j1  epoch 1  succeeded             -> refused STALE_ATTEMPT
expect   j1                                 -> interrupted  version 4

# A renewal keeps the lease and writes no event.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running      lease_in 30s  lease_count 1  version 3
pass     20s
renew    j1  epoch 1                        -> running      lease_in 30s  lease_count 2  version 3
pass     29s                                -> running
renew    j1  epoch 1  lease 60s             -> running      lease_in 60s  lease_count 3  version 3
pass     59s                                -> running
pass     1s                                 -> interrupted
events   j1                                 -> enqueued worker_claim started lease_expired

# A job that has not started keeps its lease by renewals, too.
enqueue  j1                                 -> queued
claim    j1  by w1                          -> dispatched   lease_in 30s
pass     20s
renew    j1  epoch 1                        -> dispatched   lease_in 30s
pass     29s                                -> dispatched
pass     1s                                 -> queued

# A release gives back what has not started.
enqueue  j1                                 -> queued
claim    j1  by w1                          -> dispatched   epoch 1
release  j1  epoch 1                        -> queued       owner none
event    j1  {"cause": "released", "from": "dispatched", "to": "queued", "actor": "worker:w1"}
start    j1  epoch 1                        -> refused STALE_ATTEMPT
claim    j1  by w2                          -> dispatched   epoch 2  attempt 1

# The same claim again gets the same lease, and nothing is counted twice.
enqueue  j1                                 -> queued
claim    j1  by w1  id c1                   -> dispatched   recorded no   epoch 1  lease_count 1
pass     5s
claim    j1  by w1  id c1                   -> dispatched   recorded yes  epoch 1  lease_count 1  lease_in 25s
start    j1  epoch 1                        -> running
claim    j1  by w1  id c1                   -> running      recorded yes  epoch 1
claim    j1  by w1  id c2                   -> refused INVALID_TRANSITION
claim    j1  by w2  id c3                   -> refused INVALID_TRANSITION

# The same start again gets the recorded answer.
enqueue  j1                                 -> queued
claim    j1  by w1                          -> dispatched
start    j1  epoch 1                        -> running      recorded no   version 3
start    j1  epoch 1                        -> running      recorded yes  version 3

# The same settle again gets the answer that it got, also after the job went on.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
settle   j1  epoch 1  failed SMTP_BUSY      -> retry_scheduled  recorded no   next_retry_in 1s
pass     1s
claim    j1  by w2  start                   -> running          epoch 2
settle   j1  epoch 1  failed SMTP_BUSY      -> retry_scheduled  recorded yes  epoch 1
settle   j1  epoch 1  failed OTHER          -> refused STALE_ATTEMPT
expect   j1                                 -> running          epoch 2  retry_count 1

# What holds a lease has to start before it can settle, wait or save progress.
enqueue  j1                                 -> queued
claim    j1  by w1                          -> dispatched
settle   j1  epoch 1  succeeded             -> refused INVALID_TRANSITION
wait     j1  epoch 1  time 10s              -> refused INVALID_TRANSITION
checkpoint j1  epoch 1  {"done": 3}         -> refused INVALID_TRANSITION
expect   j1                                 -> dispatched   version 2

# The lease count grows with each claim and each renewal, over the whole life.
enqueue  j1                                 -> queued           lease_count 0
claim    j1  by w1  start                   -> running          lease_count 1
renew    j1  epoch 1                        -> running          lease_count 2
settle   j1  epoch 1  failed SMTP_BUSY      -> retry_scheduled  lease_count 2
pass     1s
claim    j1  by w1  start                   -> running          lease_count 3
die      w1                                 -> interrupted      lease_count 3
claim    j1  by w2                          -> dispatched       lease_count 4
release  j1  epoch 3                        -> queued           lease_count 4
claim    j1  by w2  start                   -> running          lease_count 5
settle   j1  epoch 4  succeeded             -> succeeded        lease_count 5

# A restored store gives out no epoch that a worker may hold already.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running      epoch 1
restore                                     -> running      epoch 1
die      w1                                 -> interrupted
claim    j1  by w2  start                   -> running      epoch 4294967297
settle   j1  epoch 2  succeeded             -> refused STALE_ATTEMPT
settle   j1  epoch 4294967297  failed SMTP_BUSY  -> retry_scheduled
pass     1s
claim    j1  by w2                          -> dispatched   epoch 4294967298

# A lease is neither too short nor too long.
enqueue  j1                                 -> queued
claim    j1  by w1  lease 99ms              -> refused INVALID_INPUT  field lease_ms
claim    j1  by w1  lease 25h               -> refused INVALID_INPUT  field lease_ms
claim    j1  by w1  lease 100ms             -> dispatched   lease_in 100ms
renew    j1  lease 0s                       -> refused INVALID_INPUT  field lease_ms

# Nothing can be done to a job that is not there.
claim    j1  by w1                          -> refused NOT_FOUND
settle   j1  epoch 1  succeeded             -> refused NOT_FOUND
cancel   j1                                 -> refused NOT_FOUND

# The same claim that comes late once more, when its lease is over, does not take the job again.
enqueue  j1                                 -> queued
claim    j1  by w1  id c1                   -> dispatched  epoch 1
pass     30s                                -> queued
claim    j1  by w1  id c1                   -> queued      recorded yes  epoch 1
claim    j1  by w1  id c2                   -> dispatched  recorded no  epoch 2

# A lease belongs to the principal that claimed it: nobody else starts, keeps, parks, gives back or settles the job.
enqueue  j1                                       -> queued
claim    j1  by acme/ann/w1                       -> dispatched   epoch 1
start    j1  epoch 1  by acme/eve/w1              -> refused STALE_ATTEMPT
release  j1  epoch 1  by acme/eve/                -> refused STALE_ATTEMPT
start    j1  epoch 1  by acme/ann/                -> running
renew    j1  epoch 1  by acme/eve/                -> refused STALE_ATTEMPT
settle   j1  epoch 1  by acme/eve/  succeeded     -> refused STALE_ATTEMPT
settle   j1  epoch 1  by acme/ann/w2  succeeded   -> refused STALE_ATTEMPT
settle   j1  epoch 1  by w1  succeeded            -> refused STALE_ATTEMPT
renew    j1  epoch 1  by acme/ann/w1              -> running
settle   j1  epoch 1  by acme/ann/  succeeded     -> succeeded

# What one of the server's own workers holds is its own.
enqueue  j1                                          -> queued
claim    j1  by windlass.http-1  start               -> running      epoch 1
settle   j1  epoch 1  by acme/ann/  succeeded        -> refused STALE_ATTEMPT
settle   j1  epoch 1  by windlass.http-2  succeeded  -> refused STALE_ATTEMPT
settle   j1  epoch 1  by windlass.http-1  succeeded  -> succeeded
