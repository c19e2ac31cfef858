-- What timers and recovery look for.

-- Serves timers: the next retry of all.
CREATE INDEX jobs_retry_at ON jobs (next_retry_at) WHERE next_retry_at IS NOT NULL;

-- Serves recovery: the few sessions that somebody vouched for.
CREATE INDEX sessions_vouched ON sessions (worker) WHERE vouched;
