# One key creates one job. The same request again is a hit; another one under the same key is a conflict.

# A hit creates nothing and leads to the job that is there.
enqueue  j1  key order-1  payload {"a": 1, "b": 2}  -> queued   recorded no   job j1
enqueue  j2  key order-1  payload {"b": 2, "a": 1}  -> queued   recorded yes  job j1  version 1
claim    j2                                         -> refused NOT_FOUND
claim    j1  by w1  start                           -> running
enqueue  j2  key order-1  payload {"a": 1, "b": 2}  -> running  recorded yes  job j1
settle   j1  succeeded                              -> succeeded
enqueue  j2  key order-1  payload {"a": 1, "b": 2}  -> succeeded  recorded yes  job j1  version 4

# A conflict names each important field that differs, and only those.
enqueue  j1  key order-1  task t1                   -> queued
enqueue  j2  key order-1  task t2                   -> refused IDEMPOTENCY_CONFLICT  fields task_id  job j1
enqueue  j2  key order-1  task t1  kind mail        -> refused IDEMPOTENCY_CONFLICT  fields kind
enqueue  j2  key order-1  task t1  queue slow       -> refused IDEMPOTENCY_CONFLICT  fields queue
enqueue  j2  key order-1  task t1  schedule cron    -> refused IDEMPOTENCY_CONFLICT  fields schedule_type
enqueue  j2  key order-1  task t1  at 10s           -> refused IDEMPOTENCY_CONFLICT  fields scheduled_at
enqueue  j2  key order-1  task t1  timeout 5s       -> refused IDEMPOTENCY_CONFLICT  fields timeout_ms
enqueue  j2  key order-1  task t1  retries 4        -> refused IDEMPOTENCY_CONFLICT  fields max_retries
enqueue  j2  key order-1  task t1  base 2s          -> refused IDEMPOTENCY_CONFLICT  fields retry
enqueue  j2  key order-1  task t1  cap 60s          -> refused IDEMPOTENCY_CONFLICT  fields retry
enqueue  j2  key order-1  task t1  payload [1]      -> refused IDEMPOTENCY_CONFLICT  fields payload
enqueue  j2  key order-1  task t2  kind mail  retries 4  payload [1]  -> refused IDEMPOTENCY_CONFLICT  fields task_id,kind,max_retries,payload
expect   j1                                         -> queued   version 1

# The task counts only if it is given.
enqueue  j1  key order-1  task t1                   -> queued
enqueue  j2  key order-1                            -> queued   recorded yes  job j1
enqueue  j3  key order-2                            -> queued
enqueue  j4  key order-2  task t1                   -> refused IDEMPOTENCY_CONFLICT  fields task_id

# Priority, tags and trace do not count.
enqueue  j1  key order-1  priority 5  tags red  trace one        -> queued
enqueue  j2  key order-1  priority -5  tags blue,green  trace two  -> queued  recorded yes  job j1  trace one

# The same time again is the same request, also when that time has come.
enqueue  j1  key order-1  at 10s                    -> scheduled  due_in 10s
enqueue  j2  key order-1  at 10s                    -> scheduled  recorded yes  job j1
pass     20s                                        -> queued
enqueue  j2  key order-1  at 10s                    -> queued     recorded yes  job j1

# A key of contract runs leads to its run, whatever else was sent.
enqueue  j1  run_key r1  task t1  payload {"a": 1}  -> queued
enqueue  j2  run_key r1  task t2  payload {"a": 2}  kind mail  retries 9  -> queued  recorded yes  job j1
expect   j1                                         -> queued   payload {"a": 1}  task t1
enqueue  j3  run_key ""                             -> refused INVALID_INPUT  field idempotency_key

# The keys of contract runs are apart from all others.
enqueue  j1  run_key order-1                        -> queued
enqueue  j2  key order-1                            -> queued   recorded no  job j2
enqueue  j3  key order-1  scope runs                -> queued   recorded no  job j3

# Without a key the id of the job is the key.
enqueue  j1  payload {"a": 1}                       -> queued
enqueue  j1  payload {"a": 1}                       -> queued   recorded yes
enqueue  j1  payload {"a": 2}                       -> refused IDEMPOTENCY_CONFLICT  fields payload

# An id that is taken under a key is taken.
enqueue  j1  key order-1                            -> queued
enqueue  j1                                         -> refused JOB_EXISTS  job j1
enqueue  j1  key order-2                            -> refused JOB_EXISTS  job j1

# A known task under another key is a duplicate, where the task has to be new.
enqueue  j1  key order-1  task_new t1               -> queued
enqueue  j2  key order-1  task_new t1               -> queued   recorded yes  job j1
enqueue  j2  key order-2  task_new t1               -> refused TASK_DUPLICATE
enqueue  j2  task_new t1                            -> refused TASK_DUPLICATE
cancel   j1                                         -> cancelled
enqueue  j2  key order-2  task_new t1               -> refused TASK_DUPLICATE

# Scopes are apart.
enqueue  j1  key order-1                            -> queued
enqueue  j2  key order-1  scope tenant_a  payload [2]  -> queued  recorded no  job j2
enqueue  j3  key order-1  scope tenant_b  payload [3]  -> queued  recorded no  job j3
enqueue  j4  key order-1  scope tenant_a  payload [2]  -> queued  recorded yes  job j2

# Tenants are apart, also in what contract runs and tasks know.
enqueue  j1  tenant acme  key order-1               -> queued
enqueue  j2  tenant bolt  key order-1  payload [2]  -> queued   recorded no  tenant bolt
enqueue  j3  tenant acme  run_key r1                -> queued
enqueue  j4  tenant bolt  run_key r1                -> queued   recorded no  job j4
enqueue  j5  tenant acme  task_new t1               -> queued
enqueue  j6  tenant bolt  task_new t1               -> queued   attempt 1
enqueue  j1  tenant bolt                            -> refused JOB_EXISTS

# Nobody can name a reserved scope, and a key is never empty.
enqueue  j1  key order-1  scope _runs               -> refused INVALID_INPUT  field idempotency_scope
enqueue  j1  key order-1  scope _job                -> refused INVALID_INPUT  field idempotency_scope
enqueue  j1  key order-1  scope _x                  -> refused INVALID_INPUT  field idempotency_scope
enqueue  j1  key ""                                 -> refused INVALID_INPUT  field idempotency_key
enqueue  j1  key order-1  scope ""                  -> refused INVALID_INPUT  field idempotency_scope

# The same request again is a hit, also when its deadline has passed meanwhile.
enqueue  j1  key order-1  deadline_at 10s   -> queued
pass     20s                                -> cancelled
enqueue  j2  key order-1  deadline_at 10s   -> cancelled  recorded yes  job j1

# Contract tasks calls a key that was used for something else a duplicate.
enqueue  j1  key order-1  payload {"n": 1}  -> queued
enqueue  j2  key order-1  payload {"n": 2}  -> refused IDEMPOTENCY_CONFLICT  fields payload  in_tasks TASK_DUPLICATE
