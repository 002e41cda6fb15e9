-- grant, waits 0 s
WITH taken AS (
            UPDATE "public"."dblock_lock" AS l SET fence = greatest(l.fence, mine.epoch) + 1, waiters = CASE WHEN waiters IS NOT NULL THEN (
                    SELECT pg_catalog.array_agg(entry ORDER BY number) FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE  (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int))
                ) END,
                token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
                expires_at = clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
            FROM (
                SELECT k.ctid, open.epoch FROM (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= %(ttl)s AND valid_until > clock_timestamp()) AS open, "public"."dblock_lock" AS k
                WHERE lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR expires_at + (CASE WHEN waiters IS NULL THEN 0 ELSE (SELECT count(*) FROM pg_catalog.unnest(waiters) AS entry WHERE (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))) END)::float8 * interval '0.4 s' <= clock_timestamp())
                FOR UPDATE OF k SKIP LOCKED
            ) AS mine WHERE l.ctid = mine.ctid
            RETURNING fence, extract(epoch FROM expires_at - clock_timestamp())::float8, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)
        ), created AS (
            INSERT INTO "public"."dblock_lock"
                (lock_name, fence, token, owner, acquired_at, expires_at)
            SELECT %(name)s, greatest(open.epoch, COALESCE((SELECT fence FROM "public"."dblock_lock" WHERE lock_name = ''), 0)) + 1, %(token)s, %(owner)s, clock_timestamp(),
                clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
            FROM (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= %(ttl)s AND valid_until > clock_timestamp()) AS open
            WHERE NOT EXISTS (TABLE taken)
                AND NOT EXISTS (SELECT FROM "public"."dblock_lock" WHERE lock_name = %(name)s)
            ON CONFLICT (lock_name) DO NOTHING RETURNING fence, extract(epoch FROM expires_at - clock_timestamp())::float8, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)
        )
        TABLE taken UNION ALL TABLE created

-- grant, waits 0 s
UPDATE "public"."dblock_lock" AS l SET fence = greatest(l.fence, mine.epoch) + 1,
    token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
    expires_at = clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
FROM (
    SELECT k.ctid, open.epoch FROM (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= %(ttl)s AND valid_until > clock_timestamp()) AS open, "public"."dblock_lock" AS k
    WHERE lock_name = %(name)s AND waiters IS NULL AND (token IS NULL OR expires_at <= clock_timestamp())
    FOR UPDATE OF k SKIP LOCKED
) AS mine WHERE l.ctid = mine.ctid
RETURNING fence, extract(epoch FROM expires_at - clock_timestamp())::float8, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- grant_slot, waits 0 s
WITH admitted AS MATERIALIZED (
            SELECT epoch FROM (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= %(ttl)s AND valid_until > clock_timestamp()) AS open WHERE (SELECT value FROM "public"."dblock_value" WHERE lock_name = %(name)s AND fence = 0)
            = %(value)s
        AND NOT EXISTS (SELECT 1 FROM "public"."dblock_lock" WHERE lock_name = %(name)s AND NOT (expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR expires_at + (CASE WHEN waiters IS NULL THEN 0 ELSE (SELECT count(*) FROM pg_catalog.unnest(waiters) AS entry WHERE (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))) END)::float8 * interval '0.4 s' <= clock_timestamp()) AND (token IS NULL OR token <> %(turnstile)s))
        ), mine AS MATERIALIZED (
            SELECT free.ctid, free.epoch
            FROM pg_catalog.generate_series(0, %(limit)s::int - 1) AS n, LATERAL (
                SELECT k.ctid, admitted.epoch FROM admitted, "public"."dblock_lock" AS k
                WHERE lock_name = %(name)s::text || '#' || (1 + (%(first)s::int + n) %% %(limit)s::int)::text AND (expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR expires_at + (CASE WHEN waiters IS NULL THEN 0 ELSE (SELECT count(*) FROM pg_catalog.unnest(waiters) AS entry WHERE (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))) END)::float8 * interval '0.4 s' <= clock_timestamp())
                FOR UPDATE OF k SKIP LOCKED
            ) AS free LIMIT 1
        )
        UPDATE "public"."dblock_lock" AS l SET fence = greatest(l.fence, mine.epoch) + 1, waiters = CASE WHEN waiters IS NOT NULL THEN (
                    SELECT pg_catalog.array_agg(entry ORDER BY number) FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE  (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int))
                ) END,
                token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
                expires_at = clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
            FROM mine WHERE l.ctid = mine.ctid
            RETURNING fence, extract(epoch FROM expires_at - clock_timestamp())::float8, lock_name, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- grant_slot, waits 0 s
UPDATE "public"."dblock_lock" AS l SET fence = greatest(l.fence, mine.epoch) + 1,
                token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
                expires_at = clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
            FROM (
                SELECT k.ctid, open.epoch FROM (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= %(ttl)s AND valid_until > clock_timestamp()) AS open, "public"."dblock_lock" AS k
                WHERE lock_name = %(slot)s AND waiters IS NULL AND (token IS NULL OR expires_at <= clock_timestamp()) AND (SELECT value FROM "public"."dblock_value" WHERE lock_name = %(name)s AND fence = 0)
            = %(value)s
        AND NOT EXISTS (SELECT 1 FROM "public"."dblock_lock" WHERE lock_name = %(name)s AND NOT (expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR expires_at + (CASE WHEN waiters IS NULL THEN 0 ELSE (SELECT count(*) FROM pg_catalog.unnest(waiters) AS entry WHERE (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))) END)::float8 * interval '0.4 s' <= clock_timestamp()) AND (token IS NULL OR token <> %(turnstile)s))
                FOR UPDATE OF k SKIP LOCKED
            ) AS mine WHERE l.ctid = mine.ctid
            RETURNING fence, extract(epoch FROM expires_at - clock_timestamp())::float8, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- look_at_slots
SELECT (SELECT CASE WHEN fence = 0 THEN value WHEN fence < 0 THEN '-1' ELSE '0' END FROM "public"."dblock_value" WHERE lock_name = %(name)s), lock_name, fence, token, owner, acquired_at, expires_at, extract(epoch FROM expires_at - clock_timestamp())::float8, readers, NULL, (expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR expires_at + (CASE WHEN waiters IS NULL THEN 0 ELSE (SELECT count(*) FROM pg_catalog.unnest(waiters) AS entry WHERE (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))) END)::float8 * interval '0.4 s' <= clock_timestamp())
        FROM (SELECT 1 AS one) AS always LEFT JOIN "public"."dblock_lock"
            ON lock_name IN (%(name0)s, %(name1)s, %(name2)s)

-- set_limit
INSERT INTO "public"."dblock_value" (lock_name, fence, value, written_at)
VALUES (%(name)s, 0, %(value)s, clock_timestamp())
ON CONFLICT (lock_name) DO NOTHING RETURNING pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- set_limit
INSERT INTO "public"."dblock_value" (lock_name, fence, value, written_at)
VALUES (%(name)s, 0, %(value)s, clock_timestamp())
ON CONFLICT (lock_name)
DO UPDATE SET value = excluded.value, written_at = excluded.written_at
WHERE "public"."dblock_value".fence = 0 RETURNING pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- join, waits 0.025 s, a crash may undo it
UPDATE "public"."dblock_lock" SET waiters = CASE
            WHEN waiters IS NULL THEN ARRAY[%(entry)s]
            WHEN (SELECT number FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE pg_catalog.substr(entry, 25, 32) = %(token)s LIMIT 1) IS NULL THEN pg_catalog.array_append(waiters[(SELECT number FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int))) LIMIT 1):], %(entry)s)
            ELSE ARRAY(SELECT CASE WHEN pg_catalog.substr(entry, 25, 32) = %(token)s THEN %(entry)s ELSE entry END
                FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) ORDER BY number) END
        WHERE lock_name = %(name)s AND token IS DISTINCT FROM %(token)s AND set_config('lock_timeout', '25', true) IS NOT NULL
        RETURNING NULL, NULL, set_config('synchronous_commit', 'off', true), lock_name, fence, token, owner, acquired_at, expires_at, extract(epoch FROM expires_at - clock_timestamp())::float8, readers, CASE WHEN SUBSTR(%(token)s, 1, 6) = 'shared' THEN (SELECT count(*) FROM pg_catalog.unnest(waiters[:coalesce((SELECT number FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE pg_catalog.substr(entry, 25, 32) = %(token)s LIMIT 1) - 1, coalesce(pg_catalog.cardinality(waiters), 0))]) AS entry
        WHERE NOT (SUBSTR(%(token)s, 1, 6) = 'shared' AND SUBSTR(pg_catalog.substr(entry, 25, 32), 1, 6) = 'shared') AND (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))) ELSE pg_catalog.array_position(waiters, %(entry)s) - 1 END,
            (expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR expires_at + (CASE WHEN SUBSTR(%(token)s, 1, 6) = 'shared' THEN (SELECT count(*) FROM pg_catalog.unnest(waiters[:coalesce((SELECT number FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE pg_catalog.substr(entry, 25, 32) = %(token)s LIMIT 1) - 1, coalesce(pg_catalog.cardinality(waiters), 0))]) AS entry
        WHERE NOT (SUBSTR(%(token)s, 1, 6) = 'shared' AND SUBSTR(pg_catalog.substr(entry, 25, 32), 1, 6) = 'shared') AND (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))) ELSE pg_catalog.array_position(waiters, %(entry)s) - 1 END)::float8 * interval '0.4 s' <= clock_timestamp()), extract(epoch FROM clock_timestamp())::float8

-- take, waits 0.025 s
WITH mine AS MATERIALIZED (
            SELECT lock_name, coalesce((SELECT number FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE pg_catalog.substr(entry, 25, 32) = %(token)s LIMIT 1), coalesce(pg_catalog.cardinality(waiters), 0) + 1) AS position, open.epoch
            FROM (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= %(ttl)s AND valid_until > clock_timestamp()) AS open, "public"."dblock_lock" AS k WHERE lock_name = %(name)s AND set_config('lock_timeout', '25', true) IS NOT NULL
                AND (expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR expires_at + ((SELECT count(*) FROM pg_catalog.unnest(waiters[:coalesce((SELECT number FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE pg_catalog.substr(entry, 25, 32) = %(token)s LIMIT 1) - 1, coalesce(pg_catalog.cardinality(waiters), 0))]) AS entry
        WHERE NOT (SUBSTR(%(token)s, 1, 6) = 'shared' AND SUBSTR(pg_catalog.substr(entry, 25, 32), 1, 6) = 'shared') AND (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))))::float8 * interval '0.4 s' <= clock_timestamp()) FOR UPDATE OF k
        )
        UPDATE "public"."dblock_lock" AS l SET fence = greatest(l.fence, mine.epoch) + 1,
            waiters = CASE WHEN waiters IS NOT NULL THEN (
                    SELECT pg_catalog.array_agg(entry ORDER BY number) FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE number > mine.position OR number < mine.position AND (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int))
                ) END,
            token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
            expires_at = clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
        FROM mine WHERE l.lock_name = mine.lock_name
        RETURNING fence, extract(epoch FROM expires_at - clock_timestamp())::float8, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- join_readers, waits 0.025 s
WITH mine AS MATERIALIZED (
            SELECT k.lock_name, k.expires_at AS expiry
            FROM (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= %(ttl)s AND valid_until > clock_timestamp()) AS open, "public"."dblock_lock" AS k
            WHERE lock_name = %(name)s AND token = %(group)s AND fence > open.epoch
                AND set_config('lock_timeout', '25', true) IS NOT NULL AND (%(past)s OR (SELECT count(*) FROM pg_catalog.unnest(waiters[:coalesce((SELECT number FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE pg_catalog.substr(entry, 25, 32) = %(token)s LIMIT 1) - 1, coalesce(pg_catalog.cardinality(waiters), 0))]) AS entry
        WHERE NOT (SUBSTR(%(token)s, 1, 6) = 'shared' AND SUBSTR(pg_catalog.substr(entry, 25, 32), 1, 6) = 'shared') AND (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))) = 0) AND NOT CASE WHEN COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) THEN REPLACE(readers, (' ' || %(token)s), '') <> readers ELSE token = %(token)s END
            FOR NO KEY UPDATE OF k
        )
        UPDATE "public"."dblock_lock" AS l SET readers = (CASE WHEN COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) THEN readers ELSE (token || ' ' || token) END || ' ' || %(token)s), waiters = (SELECT pg_catalog.array_agg(entry ORDER BY number) FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE pg_catalog.substr(entry, 25, 32) <> %(token)s),
            expires_at = greatest(expires_at, clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s))
        FROM mine WHERE l.lock_name = mine.lock_name AND l.token = %(group)s
            AND mine.expiry > clock_timestamp()
        RETURNING pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- leave_readers, waits 0.025 s, a crash may undo it
UPDATE "public"."dblock_lock" SET readers = REPLACE(readers, (' ' || %(token)s), ''),
            token = CASE WHEN NOT COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) OR REPLACE(readers, (' ' || %(token)s), '') = token THEN NULL ELSE token END,
            expires_at = CASE WHEN NOT COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) OR REPLACE(readers, (' ' || %(token)s), '') = token THEN clock_timestamp() ELSE expires_at END
        WHERE lock_name = %(name)s AND token = %(group)s AND CASE WHEN COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) THEN REPLACE(readers, (' ' || %(token)s), '') <> readers ELSE token = %(token)s END AND set_config('lock_timeout', '25', true) IS NOT NULL
        RETURNING CASE WHEN token IS NULL THEN CASE WHEN waiters IS NOT NULL THEN (
SELECT pg_notify('dblock_' || pg_catalog.left(entry, 8), pg_catalog.left(entry, 12))
FROM pg_catalog.unnest(waiters) AS entry WHERE (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)) LIMIT 1) END END, set_config('synchronous_commit', 'off', true)

-- call_readers
SELECT (SELECT
    pg_catalog.count(pg_notify('dblock_' || pg_catalog.left(entry, 8), pg_catalog.left(entry, 12)))
FROM pg_catalog.unnest(waiters[:coalesce((
    SELECT min(number) FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE NOT SUBSTR(pg_catalog.substr(entry, 25, 32), 1, 6) = 'shared' AND (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))), coalesce(pg_catalog.cardinality(waiters), 0))]) AS entry
WHERE SUBSTR(pg_catalog.substr(entry, 25, 32), 1, 6) = 'shared' AND (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int))) FROM "public"."dblock_lock"
        WHERE lock_name = %(name)s AND token = %(group)s

-- leave, waits 0.25 s, a crash may undo it
UPDATE "public"."dblock_lock" SET waiters = (SELECT pg_catalog.array_agg(entry ORDER BY number) FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE pg_catalog.substr(entry, 25, 32) <> %(token)s)
        WHERE lock_name = %(name)s AND waiters IS NOT NULL AND (SELECT number FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE pg_catalog.substr(entry, 25, 32) = %(token)s LIMIT 1) IS NOT NULL
            AND set_config('lock_timeout', '250', true) IS NOT NULL
        RETURNING CASE WHEN expires_at <= clock_timestamp() THEN CASE WHEN waiters IS NOT NULL THEN (
SELECT pg_notify('dblock_' || pg_catalog.left(entry, 8), pg_catalog.left(entry, 12))
FROM pg_catalog.unnest(waiters) AS entry WHERE (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)) LIMIT 1) END END,
            set_config('synchronous_commit', 'off', true), CASE WHEN SUBSTR(token, 1, 6) = 'shared' THEN (SELECT
    pg_catalog.count(pg_notify('dblock_' || pg_catalog.left(entry, 8), pg_catalog.left(entry, 12)))
FROM pg_catalog.unnest(waiters[:coalesce((
    SELECT min(number) FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE NOT SUBSTR(pg_catalog.substr(entry, 25, 32), 1, 6) = 'shared' AND (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))), coalesce(pg_catalog.cardinality(waiters), 0))]) AS entry
WHERE SUBSTR(pg_catalog.substr(entry, 25, 32), 1, 6) = 'shared' AND (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int))) END

-- renew, waits 0 s
WITH present AS MATERIALIZED (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND longest_ttl >= %(ttl)s AND valid_until > clock_timestamp()
        ), mine AS MATERIALIZED (
            SELECT k.lock_name, k.expires_at, asked.token, asked.ttl FROM unnest(
                (SELECT %(names)s::text[]), (SELECT %(tokens)s::text[]),
                (SELECT %(ttls)s::float8[])
            ) AS asked (lock_name, token, ttl)
            JOIN "public"."dblock_lock" AS k
                ON k.lock_name = asked.lock_name AND k.token = asked.token
            JOIN present ON k.fence > present.epoch
            FOR NO KEY UPDATE OF k SKIP LOCKED
        )
        UPDATE "public"."dblock_lock" AS l
        SET expires_at = greatest(
            clock_timestamp() + pg_catalog.make_interval(secs => mine.ttl),
            CASE WHEN SUBSTR(l.token, 1, 6) = 'shared' THEN mine.expires_at END)
        FROM mine WHERE l.lock_name = mine.lock_name AND l.token = mine.token
            AND mine.expires_at > clock_timestamp()
        RETURNING l.token, l.fence, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END),
            CASE WHEN l.expires_at < mine.expires_at THEN CASE WHEN waiters IS NOT NULL THEN (
SELECT pg_notify('dblock_' || pg_catalog.left(entry, 8), pg_catalog.left(entry, 12))
FROM pg_catalog.unnest(waiters) AS entry WHERE (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)) LIMIT 1) END END

-- attach, waits 0 s
WITH present AS MATERIALIZED (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND longest_ttl >= %(ttl)s AND valid_until > clock_timestamp()
        ), mine AS MATERIALIZED (
            SELECT k.lock_name, k.expires_at FROM "public"."dblock_lock" AS k
            JOIN present ON k.fence > present.epoch
            WHERE k.lock_name = %(name)s AND k.token = %(token)s
            FOR UPDATE OF k SKIP LOCKED
        )
        UPDATE "public"."dblock_lock" AS l SET token = %(new_token)s, owner = %(owner)s,
            expires_at = clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
        FROM mine WHERE l.lock_name = mine.lock_name AND l.token = %(token)s
            AND mine.expires_at > clock_timestamp()
        RETURNING l.fence, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END),
            CASE WHEN l.expires_at < mine.expires_at THEN CASE WHEN waiters IS NOT NULL THEN (
SELECT pg_notify('dblock_' || pg_catalog.left(entry, 8), pg_catalog.left(entry, 12))
FROM pg_catalog.unnest(waiters) AS entry WHERE (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)) LIMIT 1) END END

-- release, waits 0.025 s, a crash may undo it
UPDATE "public"."dblock_lock" SET token = NULL, expires_at = clock_timestamp()
WHERE lock_name = %(name)s AND token = %(token)s AND waiters IS NULL AND set_config('lock_timeout', '25', true) IS NOT NULL
RETURNING set_config('synchronous_commit', 'off', true)

-- pass_on, waits 0.025 s, a crash may undo it
WITH newest AS MATERIALIZED (
            SELECT lock_name, waiters FROM "public"."dblock_lock"
            WHERE lock_name = %(name)s AND token = %(token)s AND set_config('lock_timeout', '25', true) IS NOT NULL
            FOR NO KEY UPDATE
        ), first AS MATERIALIZED (
            SELECT entry, number FROM newest, pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int))) LIMIT 1
        ), next AS MATERIALIZED (
            SELECT entry, number, epoch
            FROM first, LATERAL (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= (pg_catalog.substr(first.entry, 57, 4)::float8 / 1000::float8) AND valid_until > clock_timestamp()) AS open
            WHERE %(passes)s AND pg_catalog.length(entry) > 24
                AND entry NOT LIKE '00000000%%'
        )
        UPDATE "public"."dblock_lock" AS l SET
            fence = CASE WHEN next.entry IS NULL THEN l.fence
                ELSE greatest(l.fence, next.epoch) + 1 END,
            token = pg_catalog.substr(next.entry, 25, 32),
            owner = coalesce(pg_catalog.substr(next.entry, 61), l.owner),
            acquired_at = CASE WHEN next.entry IS NULL THEN l.acquired_at
                ELSE clock_timestamp() END,
            expires_at = clock_timestamp() + pg_catalog.make_interval(
                secs => coalesce((pg_catalog.substr(next.entry, 57, 4)::float8 / 1000::float8), 0)),
            waiters = CASE WHEN pg_catalog.cardinality(l.waiters) >= coalesce(next.number + 1, first.number)
                THEN l.waiters[coalesce(next.number + 1, first.number):] END
        FROM newest LEFT JOIN first ON true LEFT JOIN next ON true
        WHERE l.lock_name = newest.lock_name
        RETURNING CASE
            WHEN next.entry IS NULL THEN CASE WHEN l.waiters IS NOT NULL THEN (
SELECT pg_notify('dblock_' || pg_catalog.left(entry, 8), pg_catalog.left(entry, 12))
FROM pg_catalog.unnest(l.waiters) AS entry WHERE (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)) LIMIT 1) END
            ELSE pg_notify('dblock_' || pg_catalog.left(next.entry, 8), pg_catalog.concat_ws(' ',
                pg_catalog.left(next.entry, 24), l.fence,
                extract(epoch FROM l.acquired_at),
                extract(epoch FROM l.expires_at - l.acquired_at))) END,
            CASE WHEN next.entry IS NULL THEN set_config('synchronous_commit', 'off', true) ELSE pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END) END

-- pass_on, waits 0.025 s, a crash may undo it
WITH newest AS MATERIALIZED (
            SELECT lock_name, waiters FROM "public"."dblock_lock"
            WHERE lock_name = %(name)s AND token = %(token)s AND set_config('lock_timeout', '25', true) IS NOT NULL
            FOR NO KEY UPDATE
        ), first AS MATERIALIZED (
            SELECT entry, number FROM newest, pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int))) LIMIT 1
        ), next AS MATERIALIZED (
            SELECT entry, number, epoch
            FROM first, LATERAL (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= (pg_catalog.substr(first.entry, 57, 4)::float8 / 1000::float8) AND valid_until > clock_timestamp()) AS open
            WHERE %(passes)s AND pg_catalog.length(entry) > 24
                AND entry NOT LIKE '00000000%%'
        )
        UPDATE "public"."dblock_lock" AS l SET
            fence = CASE WHEN next.entry IS NULL THEN l.fence
                ELSE greatest(l.fence, next.epoch) + 1 END,
            token = pg_catalog.substr(next.entry, 25, 32),
            owner = coalesce(pg_catalog.substr(next.entry, 61), l.owner),
            acquired_at = CASE WHEN next.entry IS NULL THEN l.acquired_at
                ELSE clock_timestamp() END,
            expires_at = clock_timestamp() + pg_catalog.make_interval(
                secs => coalesce((pg_catalog.substr(next.entry, 57, 4)::float8 / 1000::float8), 0)),
            waiters = CASE WHEN pg_catalog.cardinality(l.waiters) >= coalesce(next.number + 1, first.number)
                THEN l.waiters[coalesce(next.number + 1, first.number):] END
        FROM newest LEFT JOIN first ON true LEFT JOIN next ON true
        WHERE l.lock_name = newest.lock_name
        RETURNING CASE
            WHEN next.entry IS NULL THEN CASE WHEN l.waiters IS NOT NULL THEN (
SELECT pg_notify('dblock_' || pg_catalog.left(entry, 8), pg_catalog.left(entry, 12))
FROM pg_catalog.unnest(l.waiters) AS entry WHERE (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)) LIMIT 1) END
            ELSE pg_notify('dblock_' || pg_catalog.left(next.entry, 8), pg_catalog.concat_ws(' ',
                pg_catalog.left(next.entry, 24), l.fence,
                extract(epoch FROM l.acquired_at),
                extract(epoch FROM l.expires_at - l.acquired_at))) END,
            CASE WHEN next.entry IS NULL THEN set_config('synchronous_commit', 'off', true) ELSE pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END) END

-- look_around
SELECT (SELECT nspname FROM pg_namespace AS n WHERE n.oid =
(SELECT relnamespace FROM pg_class AS c WHERE c.oid = s.tableoid)), current_database(), s.xmin::text, host(inet_server_addr()), current_setting('port'), s.* FROM "public"."dblock_schema" AS s

-- look_around
SELECT (SELECT nspname FROM pg_namespace AS n WHERE n.oid =
(SELECT relnamespace FROM pg_class AS c WHERE c.oid = s.tableoid)), current_database(), s.xmin::text, host(inet_server_addr()), current_setting('port'), s.* FROM "public"."dblock_schema" AS s

-- look
SELECT lock_name, fence, token, owner, acquired_at, expires_at, extract(epoch FROM expires_at - clock_timestamp())::float8, readers FROM "public"."dblock_lock" WHERE lock_name = %(name)s


-- look
SELECT lock_name, fence, token, owner, acquired_at, expires_at, extract(epoch FROM expires_at - clock_timestamp())::float8, readers FROM "public"."dblock_lock" WHERE lock_name IN (%(name0)s, %(name1)s)


-- look_queued
SELECT lock_name, fence, token, owner, acquired_at, expires_at, extract(epoch FROM expires_at - clock_timestamp())::float8, readers, CASE WHEN (SELECT number FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE pg_catalog.substr(entry, 25, 32) = %(token)s LIMIT 1) IS NOT NULL THEN (SELECT count(*) FROM pg_catalog.unnest(waiters[:coalesce((SELECT number FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE pg_catalog.substr(entry, 25, 32) = %(token)s LIMIT 1) - 1, coalesce(pg_catalog.cardinality(waiters), 0))]) AS entry
        WHERE NOT (SUBSTR(%(token)s, 1, 6) = 'shared' AND SUBSTR(pg_catalog.substr(entry, 25, 32), 1, 6) = 'shared') AND (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))) END, (expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR expires_at + ((SELECT count(*) FROM pg_catalog.unnest(waiters[:coalesce((SELECT number FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE pg_catalog.substr(entry, 25, 32) = %(token)s LIMIT 1) - 1, coalesce(pg_catalog.cardinality(waiters), 0))]) AS entry
        WHERE NOT (SUBSTR(%(token)s, 1, 6) = 'shared' AND SUBSTR(pg_catalog.substr(entry, 25, 32), 1, 6) = 'shared') AND (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))))::float8 * interval '0.4 s' <= clock_timestamp()), extract(epoch FROM clock_timestamp())::float8
        FROM "public"."dblock_lock" WHERE lock_name = %(name)s

-- list_held
SELECT lock_name, fence, token, owner, acquired_at, expires_at, extract(epoch FROM expires_at - clock_timestamp())::float8, readers FROM "public"."dblock_lock"
WHERE token IS NOT NULL OR lock_name IN (SELECT lock_name FROM "public"."dblock_waiter" WHERE expires_at > clock_timestamp()) ORDER BY lock_name

-- read_witness
SELECT epoch, (SELECT cause FROM "public"."dblock_epoch"),
    extract(epoch FROM grants_from - clock_timestamp())::float8,
    CASE WHEN valid_until > clock_timestamp() THEN longest_ttl ELSE 0 END
FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() + (SELECT pg_catalog.make_interval(secs => coalesce(longest_ttl, 30)) FROM "public"."dblock_epoch")

-- write_witness
WITH here AS MATERIALIZED (
            SELECT (SELECT system_identifier::text || '/' || CASE WHEN NOT pg_is_in_recovery()
THEN pg_catalog.substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END
FROM pg_control_system()) AS server,
                (SELECT relpersistence FROM pg_class
                    WHERE oid = '"public"."dblock_lock"'::regclass::oid) AS lock,
                (SELECT relpersistence FROM pg_class
                    WHERE oid = '"public"."dblock_witness"'::regclass::oid) AS witness
        ), seen AS MATERIALIZED (
            SELECT e.xmin::text AS version, here.server,
                e.server IS NOT DISTINCT FROM here.server AND writer = xmin::text AS same,
                here.lock = 'p' OR e.longest_ttl IS NULL OR EXISTS (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text) AS intact
            FROM "public"."dblock_epoch" AS e, here
            WHERE here.witness = 'u' AND NOT EXISTS (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() + (SELECT pg_catalog.make_interval(secs => coalesce(longest_ttl, 30)) FROM "public"."dblock_epoch"))
        ), written AS (
            UPDATE "public"."dblock_epoch" AS e SET server = seen.server, writer = pg_current_xact_id()::xid::text,
                epoch = CASE WHEN same AND intact THEN e.epoch ELSE CASE WHEN (extract(epoch FROM clock_timestamp()) * 1e6)::bigint > e.epoch THEN (extract(epoch FROM clock_timestamp()) * 1e6)::bigint ELSE e.epoch + 4294967296 END END,
                cause = CASE WHEN NOT same THEN 'failover' WHEN intact THEN e.cause
                    ELSE 'crash' END,
                grants_from = CASE WHEN same AND intact THEN least(clock_timestamp() + pg_catalog.make_interval(secs => coalesce(longest_ttl, 30)),
                    greatest(e.grants_from, clock_timestamp())) ELSE clock_timestamp() + pg_catalog.make_interval(secs => coalesce(longest_ttl, 30)) END
            FROM seen WHERE e.xmin::text = seen.version
            RETURNING e.epoch, coalesce(e.longest_ttl, 0) AS longest_ttl, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END),
                e.grants_from
        )
        INSERT INTO "public"."dblock_witness"
            (id, epoch, longest_ttl, grants_from, valid_until, writer)
        SELECT 1, epoch, longest_ttl, grants_from, grants_from + interval '25 hours', pg_current_xact_id()::xid::text
        FROM written
        ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, writer = excluded.writer,
            longest_ttl = excluded.longest_ttl, grants_from = excluded.grants_from,
            valid_until = excluded.valid_until
        RETURNING epoch

-- distrust
WITH another AS (
    UPDATE "public"."dblock_epoch" SET server = NULL, writer = pg_current_xact_id()::xid::text,
        longest_ttl = coalesce(%(longest)s::float8, longest_ttl)
    RETURNING id, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)
)
UPDATE "public"."dblock_witness" AS w SET writer = ''
FROM another WHERE w.id = another.id

-- announce_ttl
UPDATE "public"."dblock_epoch" AS e
SET longest_ttl = greatest(e.longest_ttl, %(ttl)s), writer = pg_current_xact_id()::xid::text
WHERE EXISTS (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text) RETURNING pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- record_ttl
WITH announced AS MATERIALIZED (
    SELECT FROM "public"."dblock_epoch" AS e
    WHERE e.id = 1 AND e.longest_ttl >= %(ttl)s FOR UPDATE
), seen AS MATERIALIZED (
    SELECT w.longest_ttl AS granted,
        coalesce(w.valid_until <= clock_timestamp(), true) AS lapsed
    FROM announced, "public"."dblock_witness" AS w
    WHERE w.id = 1 AND w.writer = w.xmin::text FOR UPDATE OF w
), recorded AS (
    UPDATE "public"."dblock_epoch" AS e SET writer = pg_current_xact_id()::xid::text,
        longest_ttl = CASE WHEN lapsed
            THEN greatest(%(ttl)s, granted, CASE WHEN e.longest_ttl <= granted THEN 0
WHEN pg_relation_size('"public"."dblock_lock"'::regclass) > 67108864 THEN e.longest_ttl
ELSE least(e.longest_ttl, coalesce((
    SELECT max(extract(epoch FROM expires_at - clock_timestamp()))::float8
    FROM "public"."dblock_lock" WHERE token IS NOT NULL), 0)) END) ELSE e.longest_ttl END
    FROM seen WHERE e.id = 1
    RETURNING lapsed, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)
)
UPDATE "public"."dblock_witness" AS w SET writer = pg_current_xact_id()::xid::text,
    longest_ttl = greatest(%(ttl)s, CASE WHEN NOT lapsed THEN w.longest_ttl END),
    valid_until = CASE WHEN lapsed THEN clock_timestamp() + interval '25 hours'
        ELSE w.valid_until END
FROM recorded WHERE w.id = 1

-- create
INSERT INTO "public"."dblock_lock" (lock_name, fence) SELECT %(name)s, COALESCE((SELECT fence FROM "public"."dblock_lock" WHERE lock_name = ''), 0)
WHERE NOT EXISTS (SELECT FROM "public"."dblock_lock" WHERE lock_name = %(name)s)
ON CONFLICT (lock_name) DO NOTHING

-- lock_row, waits 2.5 s, a crash may undo it
WITH open AS MATERIALIZED (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp()), locked AS MATERIALIZED (SELECT fence FROM "public"."dblock_lock" WHERE lock_name = %(name)s AND (token IS NULL OR expires_at <= clock_timestamp()) AND EXISTS (TABLE open)
    AND set_config('lock_timeout', %(patience)s, true) IS NOT NULL
    AND set_config('synchronous_commit', 'off', true) IS NOT NULL
    FOR UPDATE )
SELECT current_setting('transaction_isolation') = 'read committed', locked.fence, EXISTS (TABLE open)
FROM (SELECT) AS always LEFT JOIN locked ON true

-- lock_row, waits 2.5 s
WITH open AS MATERIALIZED (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp()), before AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS patience
), during AS MATERIALIZED (
    SELECT set_config('lock_timeout', %(patience)s, true) AS patience
    FROM before WHERE before.patience IS NOT NULL
),
here AS MATERIALIZED (SELECT WHERE EXISTS (SELECT 1 FROM "public"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND current_database() = 'shop' AND s.xmin::text = '745')), locked AS MATERIALIZED (
    SELECT fence FROM "public"."dblock_lock" WHERE lock_name = %(name)s AND (token IS NULL OR expires_at <= clock_timestamp()) AND EXISTS (TABLE open) AND EXISTS (TABLE here) AND (SELECT pg_catalog.count(patience) FROM during) = 1 FOR UPDATE
)
SELECT current_setting('transaction_isolation') = 'read committed', locked.fence,
    set_config('lock_timeout', before.patience, true), EXISTS (TABLE here), EXISTS (TABLE open)
FROM before LEFT JOIN locked ON true

-- lock_row, waits 0 s, a crash may undo it
WITH open AS MATERIALIZED (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp()), locked AS MATERIALIZED (SELECT fence FROM "public"."dblock_lock" WHERE lock_name = %(name)s AND (token IS NULL OR expires_at <= clock_timestamp()) AND EXISTS (TABLE open)
    AND set_config('lock_timeout', %(patience)s, true) IS NOT NULL
    AND set_config('synchronous_commit', 'off', true) IS NOT NULL
    FOR UPDATE SKIP LOCKED)
SELECT current_setting('transaction_isolation') = 'read committed', locked.fence, EXISTS (TABLE open)
FROM (SELECT) AS always LEFT JOIN locked ON true

-- lock_row, waits 0 s
SELECT true, fence, true FROM "public"."dblock_lock"
WHERE lock_name = %(name)s AND (token IS NULL OR expires_at <= clock_timestamp())
    AND EXISTS (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp()) AND EXISTS (SELECT 1 FROM "public"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND current_database() = 'shop' AND s.xmin::text = '745')
FOR UPDATE SKIP LOCKED

-- lock_row, a crash may undo it
WITH open AS MATERIALIZED (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp()), locked AS MATERIALIZED (SELECT fence FROM "public"."dblock_lock" WHERE lock_name = %(name)s AND (token IS NULL OR expires_at <= clock_timestamp()) AND EXISTS (TABLE open)
    AND set_config('lock_timeout', %(patience)s, true) IS NOT NULL
    AND set_config('synchronous_commit', 'off', true) IS NOT NULL
    FOR UPDATE )
SELECT current_setting('transaction_isolation') = 'read committed', locked.fence, EXISTS (TABLE open)
FROM (SELECT) AS always LEFT JOIN locked ON true

-- guard, waits 0 s
SELECT fence FROM "public"."dblock_lock"
WHERE lock_name = %(name)s AND fence = %(fence)s AND token = %(token)s
    AND fence > (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text) AND EXISTS (SELECT 1 FROM "public"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND current_database() = 'shop' AND s.xmin::text = '745')
FOR KEY SHARE SKIP LOCKED

-- apply
INSERT INTO "public"."dblock_applied" (idempotency_key, applied_at)
SELECT %(key)s, clock_timestamp() WHERE EXISTS (SELECT 1 FROM "public"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND current_database() = 'shop' AND s.xmin::text = '745')
ON CONFLICT (idempotency_key) DO NOTHING

-- unapply
DELETE FROM "public"."dblock_applied" WHERE idempotency_key = %(key)s


-- gate
INSERT INTO fences AS seen (name, fence) VALUES (%(name)s, %(fence)s)
ON CONFLICT (name) DO UPDATE SET fence = greatest(seen.fence, excluded.fence)
RETURNING fence

-- claim_once, waits 2.5 s
WITH before AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS patience
), during AS MATERIALIZED (
    SELECT set_config('lock_timeout', %(patience)s, true) AS patience
    FROM before WHERE before.patience IS NOT NULL
), here AS MATERIALIZED (SELECT WHERE EXISTS (SELECT 1 FROM "public"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND current_database() = 'shop' AND s.xmin::text = '745')
), seen AS MATERIALIZED (
    SELECT token, fingerprint, result FROM here, "public"."dblock_once"
    WHERE idempotency_key = %(key)s AND expires_at > clock_timestamp()
), made AS (
    INSERT INTO "public"."dblock_once" AS o
        (idempotency_key, token, fingerprint, made_at, expires_at)
    SELECT %(key)s, %(token)s, %(fingerprint)s, clock_timestamp(), clock_timestamp() + pg_catalog.make_interval(secs => %(keep)s)
    FROM here WHERE NOT EXISTS (TABLE seen) AND (SELECT pg_catalog.count(patience) FROM during) = 1
    ON CONFLICT (idempotency_key) DO UPDATE SET token = excluded.token, fingerprint = excluded.fingerprint, result = excluded.result, made_at = excluded.made_at, expires_at = excluded.expires_at
    WHERE o.expires_at <= clock_timestamp()
    RETURNING token, fingerprint, result
)
SELECT found.token, found.fingerprint, found.result,
    set_config('lock_timeout', before.patience, true)
FROM before LEFT JOIN (TABLE seen UNION ALL TABLE made) AS found ON true

-- claim_once, waits 0 s
WITH before AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS patience
), during AS MATERIALIZED (
    SELECT set_config('lock_timeout', %(patience)s, true) AS patience
    FROM before WHERE before.patience IS NOT NULL
), here AS MATERIALIZED (SELECT WHERE EXISTS (SELECT 1 FROM "public"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND current_database() = 'shop' AND s.xmin::text = '745')
), seen AS MATERIALIZED (
    SELECT token, fingerprint, result FROM here, "public"."dblock_once"
    WHERE idempotency_key = %(key)s AND expires_at > clock_timestamp()
), made AS (
    INSERT INTO "public"."dblock_once" AS o
        (idempotency_key, token, fingerprint, made_at, expires_at)
    SELECT %(key)s, %(token)s, %(fingerprint)s, clock_timestamp(), clock_timestamp() + pg_catalog.make_interval(secs => %(keep)s)
    FROM here WHERE NOT EXISTS (TABLE seen) AND (SELECT pg_catalog.count(patience) FROM during) = 1
    ON CONFLICT (idempotency_key) DO UPDATE SET token = excluded.token, fingerprint = excluded.fingerprint, result = excluded.result, made_at = excluded.made_at, expires_at = excluded.expires_at
    WHERE o.expires_at <= clock_timestamp()
    RETURNING token, fingerprint, result
)
SELECT found.token, found.fingerprint, found.result,
    set_config('lock_timeout', before.patience, true)
FROM before LEFT JOIN (TABLE seen UNION ALL TABLE made) AS found ON true

-- claim_once
WITH before AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS patience
), during AS MATERIALIZED (
    SELECT set_config('lock_timeout', %(patience)s, true) AS patience
    FROM before WHERE before.patience IS NOT NULL
), here AS MATERIALIZED (SELECT WHERE EXISTS (SELECT 1 FROM "public"."dblock_schema" AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' AND current_database() = 'shop' AND s.xmin::text = '745')
), seen AS MATERIALIZED (
    SELECT token, fingerprint, result FROM here, "public"."dblock_once"
    WHERE idempotency_key = %(key)s AND expires_at > clock_timestamp()
), made AS (
    INSERT INTO "public"."dblock_once" AS o
        (idempotency_key, token, fingerprint, made_at, expires_at)
    SELECT %(key)s, %(token)s, %(fingerprint)s, clock_timestamp(), clock_timestamp() + pg_catalog.make_interval(secs => %(keep)s)
    FROM here WHERE NOT EXISTS (TABLE seen) AND (SELECT pg_catalog.count(patience) FROM during) = 1
    ON CONFLICT (idempotency_key) DO UPDATE SET token = excluded.token, fingerprint = excluded.fingerprint, result = excluded.result, made_at = excluded.made_at, expires_at = excluded.expires_at
    WHERE o.expires_at <= clock_timestamp()
    RETURNING token, fingerprint, result
)
SELECT found.token, found.fingerprint, found.result,
    set_config('lock_timeout', before.patience, true)
FROM before LEFT JOIN (TABLE seen UNION ALL TABLE made) AS found ON true

-- finish_once
UPDATE "public"."dblock_once" SET result = %(result)s
WHERE idempotency_key = %(key)s AND token = %(token)s

-- forget_once
DELETE FROM "public"."dblock_once"
WHERE idempotency_key = %(key)s AND token = %(token)s

-- register, a crash may undo it
INSERT INTO "public"."dblock_waiter"
    (id, lock_name, strategy, owner, since, expires_at, holds)
VALUES (%(id)s, %(name)s, %(strategy)s, %(owner)s, clock_timestamp() + pg_catalog.make_interval(secs => %(since)s), clock_timestamp() + pg_catalog.make_interval(secs => %(expiry)s), %(holds)s) ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, holds = excluded.holds RETURNING set_config('synchronous_commit', 'off', true)

-- unregister, a crash may undo it
DELETE FROM "public"."dblock_waiter" WHERE id = %(id)s RETURNING set_config('synchronous_commit', 'off', true)


-- sweep, waits 0 s, a crash may undo it
DELETE FROM "public"."dblock_waiter" WHERE id IN (SELECT id FROM "public"."dblock_waiter" WHERE NOT (expires_at > clock_timestamp()) FOR UPDATE SKIP LOCKED) RETURNING set_config('synchronous_commit', 'off', true)


-- list_waiters
SELECT lock_name, owner, strategy, since, -extract(epoch FROM since - clock_timestamp())::float8
FROM "public"."dblock_waiter" WHERE expires_at > clock_timestamp() AND lock_name = %(name)s ORDER BY since, id

-- list_waiters
SELECT lock_name, owner, strategy, since, -extract(epoch FROM since - clock_timestamp())::float8
FROM "public"."dblock_waiter" WHERE expires_at > clock_timestamp() ORDER BY since, id

-- list_blocked
SELECT w.id, w.lock_name, CASE WHEN l.token IS NOT NULL AND l.expires_at > clock_timestamp() THEN l.fence END, w.owner, w.since,
    w.holds
FROM "public"."dblock_waiter" AS w
LEFT JOIN "public"."dblock_lock" AS l ON l.lock_name = w.lock_name
WHERE w.holds IS NOT NULL AND w.expires_at > clock_timestamp()

-- read_clock
SELECT clock_timestamp()


-- begin_run
INSERT INTO "public"."dblock_run" AS run (lock_name, slot, fence, owner, started_at)
VALUES (%(name)s, %(slot)s, %(fence)s, %(owner)s, clock_timestamp())
ON CONFLICT (lock_name, slot) DO UPDATE SET fence = CASE WHEN (run.fence < excluded.fence AND NOT
(run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0)) THEN excluded.fence ELSE run.fence END, owner = CASE WHEN (run.fence < excluded.fence AND NOT
(run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0)) THEN excluded.owner ELSE run.owner END, started_at = CASE WHEN (run.fence < excluded.fence AND NOT
(run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0)) THEN excluded.started_at ELSE run.started_at END, ended_at = CASE WHEN (run.fence < excluded.fence AND NOT
(run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0)) THEN excluded.ended_at ELSE run.ended_at END, exit_status = CASE WHEN (run.fence < excluded.fence AND NOT
(run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0)) THEN excluded.exit_status ELSE run.exit_status END RETURNING fence

-- end_run
UPDATE "public"."dblock_run" SET ended_at = clock_timestamp(),
    exit_status = %(status)s
WHERE lock_name = %(name)s AND slot = %(slot)s
    AND fence = %(fence)s RETURNING pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- forget_run
DELETE FROM "public"."dblock_run" WHERE lock_name = %(name)s AND slot = %(slot)s
AND fence = %(fence)s RETURNING pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- list_runs
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM "public"."dblock_lock" AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND expires_at > clock_timestamp()) FROM "public"."dblock_run" AS run
WHERE lock_name = %(name)s
ORDER BY started_at DESC, fence DESC LIMIT 5

-- list_runs
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM "public"."dblock_lock" AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND expires_at > clock_timestamp()) FROM "public"."dblock_run" AS run
WHERE lock_name = %(name)s AND slot = %(slot)s
ORDER BY started_at DESC, fence DESC LIMIT 1

-- list_last_runs
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM "public"."dblock_lock" AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND expires_at > clock_timestamp()) FROM (
    SELECT one.*, row_number() OVER (
        PARTITION BY lock_name ORDER BY started_at DESC, fence DESC
    ) AS age FROM "public"."dblock_run" AS one
) AS run WHERE age = 1 ORDER BY started_at DESC LIMIT 5

-- list_held_runs
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM "public"."dblock_lock" AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND expires_at > clock_timestamp())
FROM "public"."dblock_lock" AS l JOIN "public"."dblock_run" AS run
    ON run.lock_name = l.lock_name AND run.fence = l.fence
WHERE l.token IS NOT NULL

-- list_row_locks
WITH locked AS MATERIALIZED (
    SELECT lock_name, xmax AS xid, greatest(0, pg_snapshot_xmax(pg_current_snapshot())::text::bigint + ((xmax::text::bigint - pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 2147483648) & 4294967295) - 2147483648)::text::xid8 AS locker
    FROM "public"."dblock_lock" WHERE (token IS NULL OR expires_at <= clock_timestamp())
), lockers AS MATERIALIZED (
    SELECT DISTINCT pid FROM pg_locks
    WHERE locktype = 'relation' AND granted
        AND relation = '"public"."dblock_lock"'::regclass::oid
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND mode = 'RowShareLock'
)
SELECT locked.lock_name, a.pid, a.usename, a.application_name, a.xact_start,
    CASE WHEN a.xact_start IS NOT NULL THEN a.query END, a.wait_event = 'SyncRep'
FROM locked
LEFT JOIN pg_locks AS x ON x.transactionid = locked.xid
    AND x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock' AND x.granted
LEFT JOIN pg_stat_activity AS a ON a.pid = coalesce(
    x.pid, (SELECT min(pid) FROM lockers HAVING count(*) = 1)
)
WHERE CASE WHEN age(xid) > 0 THEN pg_xact_status(locker) = 'in progress' END

-- list_row_locks
WITH locked AS MATERIALIZED (
    SELECT lock_name, xmax AS xid, greatest(0, pg_snapshot_xmax(pg_current_snapshot())::text::bigint + ((xmax::text::bigint - pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 2147483648) & 4294967295) - 2147483648)::text::xid8 AS locker
    FROM "public"."dblock_lock" WHERE (token IS NULL OR expires_at <= clock_timestamp()) AND lock_name = %(name)s
), lockers AS MATERIALIZED (
    SELECT DISTINCT pid FROM pg_locks
    WHERE locktype = 'relation' AND granted
        AND relation = '"public"."dblock_lock"'::regclass::oid
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND mode = 'RowShareLock'
)
SELECT locked.lock_name, a.pid, a.usename, a.application_name, a.xact_start,
    CASE WHEN a.xact_start IS NOT NULL THEN a.query END, a.wait_event = 'SyncRep'
FROM locked
LEFT JOIN pg_locks AS x ON x.transactionid = locked.xid
    AND x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock' AND x.granted
LEFT JOIN pg_stat_activity AS a ON a.pid = coalesce(
    x.pid, (SELECT min(pid) FROM lockers HAVING count(*) = 1)
)
WHERE CASE WHEN age(xid) > 0 THEN pg_xact_status(locker) = 'in progress' END

-- prune_applied
DELETE FROM "public"."dblock_applied" WHERE applied_at < clock_timestamp() - pg_catalog.make_interval(secs => %(age)s) AND (idempotency_key) IN (SELECT idempotency_key FROM (
    SELECT idempotency_key FROM "public"."dblock_applied" AS found WHERE applied_at < clock_timestamp() - pg_catalog.make_interval(secs => %(age)s)  LIMIT 1000
) AS some_of_them)

-- prune_once
DELETE FROM "public"."dblock_once" WHERE expires_at <= clock_timestamp() AND (idempotency_key) IN (SELECT idempotency_key FROM (
    SELECT idempotency_key FROM "public"."dblock_once" AS found WHERE expires_at <= clock_timestamp()  LIMIT 1000
) AS some_of_them)

-- prune_runs
DELETE FROM "public"."dblock_run" WHERE started_at < clock_timestamp() - pg_catalog.make_interval(secs => %(age)s) AND (lock_name, slot) IN (SELECT lock_name, slot FROM (
    SELECT lock_name, slot FROM "public"."dblock_run" AS found WHERE started_at < clock_timestamp() - pg_catalog.make_interval(secs => %(age)s) AND EXISTS (SELECT 1 FROM "public"."dblock_run" AS later
WHERE later.lock_name = found.lock_name AND later.started_at > found.started_at) LIMIT 1000
) AS some_of_them)

-- look_for_unused
SELECT MAX(lock_name), MAX(CASE WHEN waiters IS NULL AND (expires_at IS NULL OR expires_at < clock_timestamp() - pg_catalog.make_interval(secs => %(age)s) AND acquired_at < clock_timestamp() - pg_catalog.make_interval(secs => %(age)s)) THEN fence END) FROM (
    SELECT lock_name, fence, acquired_at, expires_at, waiters FROM "public"."dblock_lock"
    WHERE lock_name > %(after)s ORDER BY lock_name LIMIT 1000
) AS page

-- raise_floor
INSERT INTO "public"."dblock_lock" AS floor (lock_name, fence)
VALUES ('', %(fence)s)
ON CONFLICT (lock_name) DO UPDATE SET fence = excluded.fence
WHERE excluded.fence > floor.fence

-- prune_values
DELETE FROM "public"."dblock_value" WHERE written_at < clock_timestamp() - pg_catalog.make_interval(secs => %(age)s) AND (lock_name) IN (SELECT lock_name FROM (
    SELECT lock_name FROM "public"."dblock_value" AS found WHERE written_at < clock_timestamp() - pg_catalog.make_interval(secs => %(age)s) AND fence <> 0 AND fence > -(pg_catalog.date_part('epoch', clock_timestamp()) * 1000000::float8)::bigint AND lock_name <> '' AND NOT EXISTS (SELECT 1 FROM "public"."dblock_lock" AS l
WHERE l.lock_name = found.lock_name) LIMIT 1000
) AS some_of_them)

-- take_place, a crash may undo it
WITH asked AS MATERIALIZED (
    SELECT (pg_catalog.date_part('epoch', clock_timestamp()) * 1000000::float8)::bigint AS now, %(step)s::bigint AS step, %(ahead)s::bigint AS ahead
), taken AS (
    INSERT INTO "public"."dblock_value" AS v (lock_name, fence, value, written_at)
    SELECT %(name)s::text, -now - step, %(mark)s::text, clock_timestamp() FROM asked
    WHERE NOT EXISTS (
        SELECT 1 FROM "public"."dblock_value" AS seen
        WHERE seen.lock_name = %(name)s AND step - seen.fence > now + ahead
    )
    ON CONFLICT (lock_name) DO UPDATE
    SET fence = LEAST(v.fence - (SELECT step FROM asked), excluded.fence),
        value = excluded.value, written_at = excluded.written_at
    WHERE v.fence < 0 AND v.value <> excluded.value
        AND (SELECT step - v.fence <= now + ahead FROM asked)
    RETURNING value, fence, set_config('synchronous_commit', 'off', true)
)
SELECT value, -fence, now FROM asked, (
    SELECT * FROM taken
    UNION ALL SELECT value, fence, NULL FROM "public"."dblock_value"
    WHERE lock_name = %(name)s AND NOT EXISTS (SELECT 1 FROM taken)
) AS found

-- write_value
INSERT INTO "public"."dblock_value" AS v (lock_name, fence, value, written_at)
SELECT lock_name, %(fence)s, %(value)s,
    clock_timestamp()
FROM "public"."dblock_lock"
WHERE lock_name = %(name)s AND token = %(token)s
    AND expires_at > clock_timestamp()
ON CONFLICT (lock_name) DO UPDATE SET fence = excluded.fence, value = excluded.value, written_at = excluded.written_at
WHERE v.fence BETWEEN 1 AND excluded.fence
RETURNING fence, pg_notify('dblock_observed', %(topic)s), pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- read_leader
SELECT l.token IS NOT NULL AND expires_at > clock_timestamp() AND NOT SUBSTR(l.token, 1, 6) = 'shared' AND l.fence > (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text), l.owner, l.fence, l.acquired_at, extract(epoch FROM expires_at - clock_timestamp())::float8,
    l.token, v.value, v.fence
FROM "public"."dblock_lock" AS l LEFT JOIN "public"."dblock_value" AS v
    ON v.lock_name = l.lock_name
WHERE l.lock_name = %(name)s

-- call_observers, a crash may undo it
SELECT pg_notify('dblock_observed', %(topic)s), set_config('synchronous_commit', 'off', true)


-- retire, waits 0 s
WITH idle AS MATERIALIZED (
    SELECT lock_name FROM "public"."dblock_lock" WHERE lock_name > %(after)s AND lock_name <= %(last)s AND fence <= %(fence)s AND waiters IS NULL AND (expires_at IS NULL OR expires_at < clock_timestamp() - pg_catalog.make_interval(secs => %(age)s) AND acquired_at < clock_timestamp() - pg_catalog.make_interval(secs => %(age)s))
    FOR UPDATE SKIP LOCKED
)
DELETE FROM "public"."dblock_lock" AS l USING idle WHERE l.lock_name = idle.lock_name

-- vote, waits 0 s
WITH taken AS (
            UPDATE "public"."dblock_lock" AS l SET fence = greatest(l.fence, mine.epoch) + 1, waiters = CASE WHEN waiters IS NOT NULL THEN (
                    SELECT pg_catalog.array_agg(entry ORDER BY number) FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE  (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int))
                ) END,
                token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
                expires_at = clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
            FROM (
                SELECT k.ctid, open.epoch FROM (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= %(ttl)s AND valid_until > clock_timestamp() AND EXISTS (SELECT 1 FROM "public"."dblock_value" AS v WHERE v.lock_name = ''
            AND v.written_at <= clock_timestamp() AND v.value = pg_catalog.concat('"', %(members)s::text, ' ', (pg_catalog.date_part('epoch', pg_postmaster_start_time())
                    * 1000000::float8)::bigint, '/',
                "public"."dblock_witness".epoch, '"')
            AND v.fence >= %(longest)s)) AS open, "public"."dblock_lock" AS k
                WHERE lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR expires_at + (CASE WHEN waiters IS NULL THEN 0 ELSE (SELECT count(*) FROM pg_catalog.unnest(waiters) AS entry WHERE (entry LIKE '00000000%%' OR (entry NOT LIKE '00000000%%' AND NOT pg_try_advisory_xact_lock_shared(
1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))) END)::float8 * interval '0.4 s' <= clock_timestamp())
                FOR UPDATE OF k SKIP LOCKED
            ) AS mine WHERE l.ctid = mine.ctid
            RETURNING fence, extract(epoch FROM expires_at - clock_timestamp())::float8, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)
        ), created AS (
            INSERT INTO "public"."dblock_lock"
                (lock_name, fence, token, owner, acquired_at, expires_at)
            SELECT %(name)s, greatest(open.epoch, COALESCE((SELECT fence FROM "public"."dblock_lock" WHERE lock_name = ''), 0)) + 1, %(token)s, %(owner)s, clock_timestamp(),
                clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)
            FROM (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= %(ttl)s AND valid_until > clock_timestamp() AND EXISTS (SELECT 1 FROM "public"."dblock_value" AS v WHERE v.lock_name = ''
            AND v.written_at <= clock_timestamp() AND v.value = pg_catalog.concat('"', %(members)s::text, ' ', (pg_catalog.date_part('epoch', pg_postmaster_start_time())
                    * 1000000::float8)::bigint, '/',
                "public"."dblock_witness".epoch, '"')
            AND v.fence >= %(longest)s)) AS open
            WHERE NOT EXISTS (TABLE taken)
                AND NOT EXISTS (SELECT FROM "public"."dblock_lock" WHERE lock_name = %(name)s)
            ON CONFLICT (lock_name) DO NOTHING RETURNING fence, extract(epoch FROM expires_at - clock_timestamp())::float8, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)
        )
        TABLE taken UNION ALL TABLE created

-- stamp, waits 0.025 s
UPDATE "public"."dblock_lock" AS l SET fence = %(fence)s
WHERE lock_name = %(name)s AND token = %(token)s AND expires_at > clock_timestamp()
    AND fence <= %(fence)s AND EXISTS (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND epoch < l.fence AND EXISTS (SELECT 1 FROM "public"."dblock_value" AS v WHERE v.lock_name = ''
    AND v.written_at <= clock_timestamp() AND v.value = pg_catalog.concat('"', %(members)s::text, ' ', (pg_catalog.date_part('epoch', pg_postmaster_start_time())
            * 1000000::float8)::bigint, '/',
        "public"."dblock_witness".epoch, '"')
    AND v.fence >= %(longest)s)) AND set_config('lock_timeout', '25', true) IS NOT NULL
RETURNING pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- read_member
SELECT v.value, v.fence, extract(epoch FROM v.written_at - clock_timestamp())::float8, pg_catalog.concat((pg_catalog.date_part('epoch', pg_postmaster_start_time())
            * 1000000::float8)::bigint, '/', (SELECT epoch FROM "public"."dblock_witness" WHERE writer = xmin::text)), greatest((SELECT max(fence) FROM "public"."dblock_lock"),
    (SELECT epoch FROM "public"."dblock_epoch"))
FROM (SELECT 1 AS one) AS always
LEFT JOIN "public"."dblock_value" AS v ON v.lock_name = ''

-- write_member
INSERT INTO "public"."dblock_value" (lock_name, fence, value, written_at)
VALUES ('', %(longest)s, %(after)s, clock_timestamp() + pg_catalog.make_interval(secs => %(pause)s))
ON CONFLICT (lock_name) DO NOTHING RETURNING pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- write_member
UPDATE "public"."dblock_value" SET value = %(after)s, written_at = clock_timestamp() + pg_catalog.make_interval(secs => %(pause)s),
    fence = CASE WHEN fence > %(longest)s THEN fence ELSE %(longest)s END
WHERE lock_name = '' AND value = %(before)s RETURNING pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)

-- raise_fences
UPDATE "public"."dblock_lock" SET fence = %(fence)s WHERE fence < %(fence)s RETURNING pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)


-- end_session
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = %(number)s AND backend_start = %(mark)s
