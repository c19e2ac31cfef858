-- Claims that were granted something: the same again gets what it still holds of that, and nothing else.

-- By the hour of the grant, counted from 1970: a claim counts in its own hour and in the next, and then the rows of an hour
-- go from the beginning of the table. An id that we make begins with its time, so most rows are added at the end.
CREATE TABLE claims (
    hour INTEGER NOT NULL,
    id   BLOB    NOT NULL CHECK (length(id) = 16),
    PRIMARY KEY (hour, id)
) STRICT, WITHOUT ROWID;
