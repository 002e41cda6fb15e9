-- grant, waits 0.05 s
INSERT INTO "main"."dblock_lock"
    (lock_name, fence, token, owner, acquired_at, expires_at)
VALUES (:name, COALESCE((SELECT fence FROM "main"."dblock_lock" WHERE lock_name = ''), 0) + 1, :token, :owner, strftime('%Y-%m-%d %H:%M:%f', 'now'), strftime('%Y-%m-%d %H:%M:%f', 'now', :ttl))
ON CONFLICT (lock_name) DO UPDATE SET fence = fence + 1, token = excluded.token,
    owner = excluded.owner, acquired_at = excluded.acquired_at,
    expires_at = excluded.expires_at, waiters = NULL
WHERE (expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', ifnull((length(waiters) + 1) / 25, 0) * 0.4)))
RETURNING fence, round((julianday(expires_at) - julianday('now')) * 86400.0, 3)

-- grant_slot, waits 0.05 s
WITH RECURSIVE numbers (n) AS (
    SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :limit
)
UPDATE "main"."dblock_lock" SET fence = fence + 1, token = :token, owner = :owner,
    acquired_at = strftime('%Y-%m-%d %H:%M:%f', 'now'), expires_at = strftime('%Y-%m-%d %H:%M:%f', 'now', :ttl), waiters = NULL
WHERE lock_name = (
    SELECT slot.lock_name FROM numbers CROSS JOIN "main"."dblock_lock" AS slot
    WHERE slot.lock_name = :name || '#' || (1 + (:first + n) % :limit)
        AND (expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', ifnull((length(waiters) + 1) / 25, 0) * 0.4)))
    LIMIT 1
) AND (SELECT value FROM "main"."dblock_value" WHERE lock_name = :name AND fence = 0)
    = :value
AND NOT EXISTS (SELECT 1 FROM "main"."dblock_lock" WHERE lock_name = :name AND NOT (expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', ifnull((length(waiters) + 1) / 25, 0) * 0.4))) AND (token IS NULL OR token <> :turnstile))
RETURNING fence, round((julianday(expires_at) - julianday('now')) * 86400.0, 3), lock_name

-- grant_slot, waits 0.05 s
UPDATE "main"."dblock_lock" SET fence = fence + 1, token = :token, owner = :owner,
    acquired_at = strftime('%Y-%m-%d %H:%M:%f', 'now'), expires_at = strftime('%Y-%m-%d %H:%M:%f', 'now', :ttl), waiters = NULL
WHERE lock_name = :slot AND (expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', ifnull((length(waiters) + 1) / 25, 0) * 0.4))) AND (SELECT value FROM "main"."dblock_value" WHERE lock_name = :name AND fence = 0)
    = :value
AND NOT EXISTS (SELECT 1 FROM "main"."dblock_lock" WHERE lock_name = :name AND NOT (expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', ifnull((length(waiters) + 1) / 25, 0) * 0.4))) AND (token IS NULL OR token <> :turnstile))
RETURNING fence, round((julianday(expires_at) - julianday('now')) * 86400.0, 3), lock_name

-- look_at_slots, waits 0.05 s
SELECT (SELECT CASE WHEN fence = 0 THEN value WHEN fence < 0 THEN '-1' ELSE '0' END FROM "main"."dblock_value" WHERE lock_name = :name), lock_name, fence, token, owner, acquired_at, expires_at, round((julianday(expires_at) - julianday('now')) * 86400.0, 3), readers, NULL, (expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', ifnull((length(waiters) + 1) / 25, 0) * 0.4)))
FROM (SELECT 1 AS one) AS always LEFT JOIN "main"."dblock_lock"
    ON lock_name IN (:name0, :name1, :name2)

-- set_limit, waits 0.05 s
INSERT INTO "main"."dblock_value" (lock_name, fence, value, written_at)
VALUES (:name, 0, :value, strftime('%Y-%m-%d %H:%M:%f', 'now'))
ON CONFLICT (lock_name) DO NOTHING

-- set_limit, waits 0.05 s
INSERT INTO "main"."dblock_value" (lock_name, fence, value, written_at)
VALUES (:name, 0, :value, strftime('%Y-%m-%d %H:%M:%f', 'now'))
ON CONFLICT (lock_name)
DO UPDATE SET value = excluded.value, written_at = excluded.written_at
WHERE "main"."dblock_value".fence = 0

-- join, waits 0.05 s
INSERT INTO "main"."dblock_lock"
            (lock_name, fence, token, owner, acquired_at, expires_at)
        VALUES (:name, COALESCE((SELECT fence FROM "main"."dblock_lock" WHERE lock_name = ''), 0) + 1, :token, :owner, strftime('%Y-%m-%d %H:%M:%f', 'now'), strftime('%Y-%m-%d %H:%M:%f', 'now', :ttl))
        ON CONFLICT (lock_name) DO UPDATE SET
            fence = fence + (expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', iif((ifnull(instr(waiters, :ticket), 0) > 0), (instr(waiters, :ticket) - 1) / 25, ifnull((length(waiters) + 1) / 25, 0)) * 0.4))),
            token = iif((expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', iif((ifnull(instr(waiters, :ticket), 0) > 0), (instr(waiters, :ticket) - 1) / 25, ifnull((length(waiters) + 1) / 25, 0)) * 0.4))), excluded.token, token),
            owner = iif((expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', iif((ifnull(instr(waiters, :ticket), 0) > 0), (instr(waiters, :ticket) - 1) / 25, ifnull((length(waiters) + 1) / 25, 0)) * 0.4))), excluded.owner, owner),
            acquired_at = iif((expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', iif((ifnull(instr(waiters, :ticket), 0) > 0), (instr(waiters, :ticket) - 1) / 25, ifnull((length(waiters) + 1) / 25, 0)) * 0.4))), excluded.acquired_at, acquired_at),
            expires_at = iif((expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', iif((ifnull(instr(waiters, :ticket), 0) > 0), (instr(waiters, :ticket) - 1) / 25, ifnull((length(waiters) + 1) / 25, 0)) * 0.4))), excluded.expires_at, expires_at),
            waiters = iif((expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', iif((ifnull(instr(waiters, :ticket), 0) > 0), (instr(waiters, :ticket) - 1) / 25, ifnull((length(waiters) + 1) / 25, 0)) * 0.4))), iif(instr(waiters, :ticket),
nullif(substr(waiters, instr(waiters, :ticket) + 25), ''), NULL), ifnull(waiters || ',', '') || :ticket)
        WHERE (expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', iif((ifnull(instr(waiters, :ticket), 0) > 0), (instr(waiters, :ticket) - 1) / 25, ifnull((length(waiters) + 1) / 25, 0)) * 0.4))) OR NOT (ifnull(instr(waiters, :ticket), 0) > 0)
        RETURNING iif(token = :token, fence, NULL), round((julianday(expires_at) - julianday('now')) * 86400.0, 3), NULL, lock_name, fence, token, owner, acquired_at, expires_at, round((julianday(expires_at) - julianday('now')) * 86400.0, 3), readers,
            iif((ifnull(instr(waiters, :ticket), 0) > 0), iif((ifnull(instr(waiters, :ticket), 0) > 0), (instr(waiters, :ticket) - 1) / 25, ifnull((length(waiters) + 1) / 25, 0)), NULL), (expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', iif((ifnull(instr(waiters, :ticket), 0) > 0), (instr(waiters, :ticket) - 1) / 25, ifnull((length(waiters) + 1) / 25, 0)) * 0.4)))

-- join_readers, waits 0.05 s
UPDATE "main"."dblock_lock" SET readers = (CASE WHEN COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) THEN readers ELSE (token || ' ' || token) END || ' ' || :token),
    expires_at = max(expires_at, strftime('%Y-%m-%d %H:%M:%f', 'now', :ttl)), waiters = nullif(
    trim(replace(',' || waiters || ',', ',' || :ticket || ',', ','), ','), '')
WHERE lock_name = :name AND token = :group AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now')
    AND (:past OR iif((ifnull(instr(waiters, :ticket), 0) > 0), (instr(waiters, :ticket) - 1) / 25, ifnull((length(waiters) + 1) / 25, 0)) = 0) AND NOT CASE WHEN COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) THEN REPLACE(readers, (' ' || :token), '') <> readers ELSE token = :token END

-- leave_readers, waits 0.05 s
UPDATE "main"."dblock_lock" SET readers = REPLACE(readers, (' ' || :token), ''),
    token = iif(NOT COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) OR REPLACE(readers, (' ' || :token), '') = token, NULL, token),
    expires_at = iif(NOT COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) OR REPLACE(readers, (' ' || :token), '') = token, strftime('%Y-%m-%d %H:%M:%f', 'now'), expires_at)
WHERE lock_name = :name AND token = :group AND CASE WHEN COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) THEN REPLACE(readers, (' ' || :token), '') <> readers ELSE token = :token END

-- leave, waits 0.05 s
UPDATE "main"."dblock_lock" SET waiters = nullif(
    trim(replace(',' || waiters || ',', ',' || :ticket || ',', ','), ','), '')
WHERE lock_name = :name AND (ifnull(instr(waiters, :ticket), 0) > 0)

-- renew, waits 0.05 s
UPDATE "main"."dblock_lock" AS l
SET expires_at = iif(SUBSTR(l.token, 1, 6) = 'shared', max(expires_at, strftime('%Y-%m-%d %H:%M:%f', 'now', json_extract(asked.value, '$[2]'))), strftime('%Y-%m-%d %H:%M:%f', 'now', json_extract(asked.value, '$[2]')))
FROM json_each(:asked) AS asked
WHERE l.lock_name = json_extract(asked.value, '$[0]')
    AND l.token = json_extract(asked.value, '$[1]')
    AND l.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now')
RETURNING token, fence

-- attach, waits 0.05 s
UPDATE "main"."dblock_lock"
SET token = :new_token, owner = :owner, expires_at = strftime('%Y-%m-%d %H:%M:%f', 'now', :ttl)
WHERE lock_name = :name AND token = :token AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now')
RETURNING fence

-- release, waits 0.05 s
UPDATE "main"."dblock_lock" SET token = NULL, expires_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
WHERE lock_name = :name AND token = :token

-- release, waits 0.05 s
UPDATE "main"."dblock_lock" SET token = NULL, expires_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
WHERE lock_name = :name AND token = :token

-- release, waits 0.05 s
UPDATE "main"."dblock_lock" SET token = NULL, expires_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
WHERE lock_name = :name AND token = :token

-- look_around, waits 0.05 s
SELECT 'main', (SELECT file FROM pragma_database_list WHERE name = 'main'), s.* FROM "main"."dblock_schema" AS s


-- look_around, waits 0.05 s
SELECT 'main', (SELECT file FROM pragma_database_list WHERE name = 'main'), s.* FROM "main"."dblock_schema" AS s


-- look, waits 0.05 s
SELECT lock_name, fence, token, owner, acquired_at, expires_at, round((julianday(expires_at) - julianday('now')) * 86400.0, 3), readers FROM "main"."dblock_lock" WHERE lock_name = :name


-- look, waits 0.05 s
SELECT lock_name, fence, token, owner, acquired_at, expires_at, round((julianday(expires_at) - julianday('now')) * 86400.0, 3), readers FROM "main"."dblock_lock" WHERE lock_name IN (:name0, :name1)


-- look_queued, waits 0.05 s
SELECT lock_name, fence, token, owner, acquired_at, expires_at, round((julianday(expires_at) - julianday('now')) * 86400.0, 3), readers, CASE WHEN (ifnull(instr(waiters, :ticket), 0) > 0) THEN iif((ifnull(instr(waiters, :ticket), 0) > 0), (instr(waiters, :ticket) - 1) / 25, ifnull((length(waiters) + 1) / 25, 0)) END, (expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', iif((ifnull(instr(waiters, :ticket), 0) > 0), (instr(waiters, :ticket) - 1) / 25, ifnull((length(waiters) + 1) / 25, 0)) * 0.4)))
FROM "main"."dblock_lock" WHERE lock_name = :name

-- list_held, waits 0.05 s
SELECT lock_name, fence, token, owner, acquired_at, expires_at, round((julianday(expires_at) - julianday('now')) * 86400.0, 3), readers FROM "main"."dblock_lock"
WHERE token IS NOT NULL OR lock_name IN (SELECT lock_name FROM "main"."dblock_waiter" WHERE round((julianday(expires_at) - julianday('now')) * 86400.0, 3) > 0) ORDER BY lock_name

-- create
INSERT INTO "main"."dblock_lock" (lock_name, fence) SELECT :name, COALESCE((SELECT fence FROM "main"."dblock_lock" WHERE lock_name = ''), 0)
WHERE true ON CONFLICT (lock_name) DO NOTHING

-- lock_row
SELECT fence FROM "main"."dblock_lock" WHERE lock_name = :name AND (token IS NULL OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now'))


-- lock_row
UPDATE "main"."dblock_lock" SET fence = fence
WHERE lock_name = :name AND (token IS NULL OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) AND EXISTS (SELECT 1 FROM "main"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND (SELECT file FROM pragma_database_list WHERE name = 'main') = '/srv/shop.db') RETURNING fence

-- lock_row
SELECT fence FROM "main"."dblock_lock" WHERE lock_name = :name AND (token IS NULL OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now'))


-- lock_row
UPDATE "main"."dblock_lock" SET fence = fence
WHERE lock_name = :name AND (token IS NULL OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) AND EXISTS (SELECT 1 FROM "main"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND (SELECT file FROM pragma_database_list WHERE name = 'main') = '/srv/shop.db') RETURNING fence

-- lock_row
SELECT fence FROM "main"."dblock_lock" WHERE lock_name = :name AND (token IS NULL OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now'))


-- guard
UPDATE "main"."dblock_lock" SET fence = fence
WHERE lock_name = :name AND fence = :fence AND token = :token AND EXISTS (SELECT 1 FROM "main"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND (SELECT file FROM pragma_database_list WHERE name = 'main') = '/srv/shop.db')
RETURNING fence

-- apply
INSERT INTO "main"."dblock_applied" (idempotency_key, applied_at)
SELECT :key, strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE EXISTS (SELECT 1 FROM "main"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND (SELECT file FROM pragma_database_list WHERE name = 'main') = '/srv/shop.db') ON CONFLICT (idempotency_key) DO NOTHING

-- unapply
DELETE FROM "main"."dblock_applied" WHERE idempotency_key = :key


-- gate
INSERT INTO fences (name, fence) VALUES (:name, :fence)
ON CONFLICT (name) DO UPDATE SET fence = max(fence, excluded.fence)
RETURNING fence

-- claim_once
INSERT INTO "main"."dblock_once" AS o
(idempotency_key, token, fingerprint, result, made_at, expires_at)
SELECT :key, :token, :fingerprint, NULL, strftime('%Y-%m-%d %H:%M:%f', 'now'), strftime('%Y-%m-%d %H:%M:%f', 'now', :keep) WHERE EXISTS (SELECT 1 FROM "main"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND (SELECT file FROM pragma_database_list WHERE name = 'main') = '/srv/shop.db')
ON CONFLICT (idempotency_key) DO UPDATE SET token = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.token ELSE o.token END, fingerprint = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.fingerprint ELSE o.fingerprint END, result = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.result ELSE o.result END, made_at = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.made_at ELSE o.made_at END, expires_at = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.expires_at ELSE o.expires_at END
RETURNING token, fingerprint, result

-- claim_once
INSERT INTO "main"."dblock_once" AS o
(idempotency_key, token, fingerprint, result, made_at, expires_at)
SELECT :key, :token, :fingerprint, NULL, strftime('%Y-%m-%d %H:%M:%f', 'now'), strftime('%Y-%m-%d %H:%M:%f', 'now', :keep) WHERE EXISTS (SELECT 1 FROM "main"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND (SELECT file FROM pragma_database_list WHERE name = 'main') = '/srv/shop.db')
ON CONFLICT (idempotency_key) DO UPDATE SET token = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.token ELSE o.token END, fingerprint = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.fingerprint ELSE o.fingerprint END, result = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.result ELSE o.result END, made_at = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.made_at ELSE o.made_at END, expires_at = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.expires_at ELSE o.expires_at END
RETURNING token, fingerprint, result

-- claim_once
INSERT INTO "main"."dblock_once" AS o
(idempotency_key, token, fingerprint, result, made_at, expires_at)
SELECT :key, :token, :fingerprint, NULL, strftime('%Y-%m-%d %H:%M:%f', 'now'), strftime('%Y-%m-%d %H:%M:%f', 'now', :keep) WHERE EXISTS (SELECT 1 FROM "main"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND (SELECT file FROM pragma_database_list WHERE name = 'main') = '/srv/shop.db')
ON CONFLICT (idempotency_key) DO UPDATE SET token = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.token ELSE o.token END, fingerprint = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.fingerprint ELSE o.fingerprint END, result = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.result ELSE o.result END, made_at = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.made_at ELSE o.made_at END, expires_at = CASE WHEN o.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.expires_at ELSE o.expires_at END
RETURNING token, fingerprint, result

-- finish_once
UPDATE "main"."dblock_once" SET result = :result
WHERE idempotency_key = :key AND token = :token

-- forget_once
DELETE FROM "main"."dblock_once"
WHERE idempotency_key = :key AND token = :token

-- register, waits 0.05 s
INSERT INTO "main"."dblock_waiter"
    (id, lock_name, strategy, owner, since, expires_at, holds)
VALUES (:id, :name, :strategy, :owner, strftime('%Y-%m-%d %H:%M:%f', 'now', :since), strftime('%Y-%m-%d %H:%M:%f', 'now', :expiry), :holds) ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, holds = excluded.holds

-- unregister, waits 0.05 s
DELETE FROM "main"."dblock_waiter" WHERE id = :id


-- sweep, waits 0.05 s
DELETE FROM "main"."dblock_waiter" WHERE round((julianday(expires_at) - julianday('now')) * 86400.0, 3) <= 0


-- list_waiters, waits 0.05 s
SELECT lock_name, owner, strategy, since, -round((julianday(since) - julianday('now')) * 86400.0, 3)
FROM "main"."dblock_waiter" WHERE round((julianday(expires_at) - julianday('now')) * 86400.0, 3) > 0 AND lock_name = :name ORDER BY since, id

-- list_waiters, waits 0.05 s
SELECT lock_name, owner, strategy, since, -round((julianday(since) - julianday('now')) * 86400.0, 3)
FROM "main"."dblock_waiter" WHERE round((julianday(expires_at) - julianday('now')) * 86400.0, 3) > 0 ORDER BY since, id

-- list_blocked, waits 0.05 s
SELECT w.id, w.lock_name, CASE WHEN l.token IS NOT NULL AND round((julianday(l.expires_at) - julianday('now')) * 86400.0, 3) > 0 THEN l.fence END, w.owner, w.since,
    w.holds
FROM "main"."dblock_waiter" AS w
LEFT JOIN "main"."dblock_lock" AS l ON l.lock_name = w.lock_name
WHERE w.holds IS NOT NULL AND round((julianday(w.expires_at) - julianday('now')) * 86400.0, 3) > 0

-- read_clock
SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')


-- begin_run, waits 0.05 s
INSERT INTO "main"."dblock_run" AS run (lock_name, slot, fence, owner, started_at)
VALUES (:name, :slot, :fence, :owner, strftime('%Y-%m-%d %H:%M:%f', 'now'))
ON CONFLICT (lock_name, slot) DO UPDATE SET fence = CASE WHEN (run.fence < excluded.fence AND NOT
(run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0)) THEN excluded.fence ELSE run.fence END, owner = CASE WHEN (run.fence < excluded.fence AND NOT
(run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0)) THEN excluded.owner ELSE run.owner END, started_at = CASE WHEN (run.fence < excluded.fence AND NOT
(run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0)) THEN excluded.started_at ELSE run.started_at END, ended_at = CASE WHEN (run.fence < excluded.fence AND NOT
(run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0)) THEN excluded.ended_at ELSE run.ended_at END, exit_status = CASE WHEN (run.fence < excluded.fence AND NOT
(run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0)) THEN excluded.exit_status ELSE run.exit_status END RETURNING fence

-- end_run, waits 0.05 s
UPDATE "main"."dblock_run" SET ended_at = strftime('%Y-%m-%d %H:%M:%f', 'now'),
    exit_status = :status
WHERE lock_name = :name AND slot = :slot
    AND fence = :fence

-- forget_run, waits 0.05 s
DELETE FROM "main"."dblock_run" WHERE lock_name = :name AND slot = :slot
AND fence = :fence

-- list_runs, waits 0.05 s
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM "main"."dblock_lock" AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND round((julianday(expires_at) - julianday('now')) * 86400.0, 3) > 0) FROM "main"."dblock_run" AS run
WHERE lock_name = :name
ORDER BY started_at DESC, fence DESC LIMIT 5

-- list_runs, waits 0.05 s
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM "main"."dblock_lock" AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND round((julianday(expires_at) - julianday('now')) * 86400.0, 3) > 0) FROM "main"."dblock_run" AS run
WHERE lock_name = :name AND slot = :slot
ORDER BY started_at DESC, fence DESC LIMIT 1

-- list_last_runs, waits 0.05 s
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM "main"."dblock_lock" AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND round((julianday(expires_at) - julianday('now')) * 86400.0, 3) > 0) FROM (
    SELECT one.*, row_number() OVER (
        PARTITION BY lock_name ORDER BY started_at DESC, fence DESC
    ) AS age FROM "main"."dblock_run" AS one
) AS run WHERE age = 1 ORDER BY started_at DESC LIMIT 5

-- list_held_runs, waits 0.05 s
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM "main"."dblock_lock" AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND round((julianday(expires_at) - julianday('now')) * 86400.0, 3) > 0)
FROM "main"."dblock_lock" AS l JOIN "main"."dblock_run" AS run
    ON run.lock_name = l.lock_name AND run.fence = l.fence
WHERE l.token IS NOT NULL

-- list_row_locks, waits 0 s
UPDATE "main"."dblock_lock" SET fence = fence WHERE false


-- list_row_locks, waits 0 s
UPDATE "main"."dblock_lock" SET fence = fence WHERE false


-- prune_applied, waits 0.05 s
DELETE FROM "main"."dblock_applied" WHERE applied_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds') AND (idempotency_key) IN (SELECT idempotency_key FROM (
    SELECT idempotency_key FROM "main"."dblock_applied" AS found WHERE applied_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds')  LIMIT 1000
) AS some_of_them)

-- prune_once, waits 0.05 s
DELETE FROM "main"."dblock_once" WHERE expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') AND (idempotency_key) IN (SELECT idempotency_key FROM (
    SELECT idempotency_key FROM "main"."dblock_once" AS found WHERE expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')  LIMIT 1000
) AS some_of_them)

-- prune_runs, waits 0.05 s
DELETE FROM "main"."dblock_run" WHERE started_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds') AND (lock_name, slot) IN (SELECT lock_name, slot FROM (
    SELECT lock_name, slot FROM "main"."dblock_run" AS found WHERE started_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds') AND EXISTS (SELECT 1 FROM "main"."dblock_run" AS later
WHERE later.lock_name = found.lock_name AND later.started_at > found.started_at) LIMIT 1000
) AS some_of_them)

-- look_for_unused, waits 0.05 s
SELECT MAX(lock_name), MAX(CASE WHEN waiters IS NULL AND (expires_at IS NULL OR expires_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds') AND acquired_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds')) THEN fence END) FROM (
    SELECT lock_name, fence, acquired_at, expires_at, waiters FROM "main"."dblock_lock"
    WHERE lock_name > :after ORDER BY lock_name LIMIT 1000
) AS page

-- raise_floor, waits 0.05 s
INSERT INTO "main"."dblock_lock" AS floor (lock_name, fence)
VALUES ('', :fence)
ON CONFLICT (lock_name) DO UPDATE SET fence = excluded.fence
WHERE excluded.fence > floor.fence

-- prune_values, waits 0.05 s
DELETE FROM "main"."dblock_value" WHERE written_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds') AND (lock_name) IN (SELECT lock_name FROM (
    SELECT lock_name FROM "main"."dblock_value" AS found WHERE written_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds') AND fence <> 0 AND fence > -CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AND lock_name <> '' AND NOT EXISTS (SELECT 1 FROM "main"."dblock_lock" AS l
WHERE l.lock_name = found.lock_name) LIMIT 1000
) AS some_of_them)

-- take_place
INSERT INTO "main"."dblock_value" AS v (lock_name, fence, value, written_at)
VALUES (:name, -CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 - :step, :mark, strftime('%Y-%m-%d %H:%M:%f', 'now'))
ON CONFLICT (lock_name) DO UPDATE
SET fence = CASE WHEN v.fence < 0 AND v.value <> :mark AND :step - v.fence <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 + :ahead THEN min(v.fence - :step, excluded.fence) ELSE v.fence END,
    value = CASE WHEN v.fence < 0 AND v.value <> :mark AND :step - v.fence <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 + :ahead THEN excluded.value ELSE v.value END,
    written_at = CASE WHEN v.fence < 0 AND v.value <> :mark AND :step - v.fence <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 + :ahead THEN excluded.written_at ELSE v.written_at END
RETURNING value, -fence, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000

-- write_value, waits 0.05 s
INSERT INTO "main"."dblock_value" AS v (lock_name, fence, value, written_at)
SELECT lock_name, :fence, :value,
    strftime('%Y-%m-%d %H:%M:%f', 'now')
FROM "main"."dblock_lock"
WHERE lock_name = :name AND token = :token
    AND round((julianday(expires_at) - julianday('now')) * 86400.0, 3) > 0
ON CONFLICT (lock_name) DO UPDATE SET fence = excluded.fence, value = excluded.value, written_at = excluded.written_at
WHERE v.fence BETWEEN 1 AND excluded.fence
RETURNING fence

-- read_leader, waits 0.05 s
SELECT l.token IS NOT NULL AND round((julianday(expires_at) - julianday('now')) * 86400.0, 3) > 0 AND NOT SUBSTR(l.token, 1, 6) = 'shared', l.owner, l.fence, l.acquired_at, round((julianday(expires_at) - julianday('now')) * 86400.0, 3),
    l.token, v.value, v.fence
FROM "main"."dblock_lock" AS l LEFT JOIN "main"."dblock_value" AS v
    ON v.lock_name = l.lock_name
WHERE l.lock_name = :name

-- retire, waits 0.05 s
DELETE FROM "main"."dblock_lock" WHERE lock_name > :after AND lock_name <= :last AND fence <= :fence AND waiters IS NULL AND (expires_at IS NULL OR expires_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds') AND acquired_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds'))


-- vote, waits 0.05 s
INSERT INTO "main"."dblock_lock"
    (lock_name, fence, token, owner, acquired_at, expires_at)
SELECT :name, COALESCE((SELECT fence FROM "main"."dblock_lock" WHERE lock_name = ''), 0) + 1, :token, :owner, strftime('%Y-%m-%d %H:%M:%f', 'now'), strftime('%Y-%m-%d %H:%M:%f', 'now', :ttl)
WHERE EXISTS (SELECT 1 FROM "main"."dblock_value" AS v WHERE v.lock_name = ''
    AND v.written_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') AND v.value = '"' || :members || ' "'
    AND v.fence >= :longest)
ON CONFLICT (lock_name) DO UPDATE SET fence = fence + 1, token = excluded.token,
    owner = excluded.owner, acquired_at = excluded.acquired_at,
    expires_at = excluded.expires_at, waiters = NULL
WHERE (expires_at IS NULL OR token IS NULL AND expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', printf('-%.3f seconds', ifnull((length(waiters) + 1) / 25, 0) * 0.4)))
RETURNING fence, round((julianday(expires_at) - julianday('now')) * 86400.0, 3)

-- stamp, waits 0.05 s
UPDATE "main"."dblock_lock" SET fence = :fence
WHERE lock_name = :name AND token = :token AND round((julianday(expires_at) - julianday('now')) * 86400.0, 3) > 0
    AND fence <= :fence AND EXISTS (SELECT 1 FROM "main"."dblock_value" AS v WHERE v.lock_name = ''
    AND v.written_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') AND v.value = '"' || :members || ' "'
    AND v.fence >= :longest)

-- read_member, waits 0.05 s
SELECT v.value, v.fence, round((julianday(v.written_at) - julianday('now')) * 86400.0, 3), '', (SELECT MAX(fence) FROM "main"."dblock_lock")
FROM (SELECT 1 AS one) AS always
LEFT JOIN "main"."dblock_value" AS v ON v.lock_name = ''

-- write_member, waits 0.05 s
INSERT INTO "main"."dblock_value" (lock_name, fence, value, written_at)
VALUES ('', :longest, :after, strftime('%Y-%m-%d %H:%M:%f', 'now', :pause))
ON CONFLICT (lock_name) DO NOTHING

-- write_member, waits 0.05 s
UPDATE "main"."dblock_value" SET value = :after, written_at = strftime('%Y-%m-%d %H:%M:%f', 'now', :pause),
    fence = CASE WHEN fence > :longest THEN fence ELSE :longest END
WHERE lock_name = '' AND value = :before

-- raise_fences, waits 0.05 s
UPDATE "main"."dblock_lock" SET fence = :fence WHERE fence < :fence

