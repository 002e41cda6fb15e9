DO $create$
BEGIN
    IF to_regclass('"locking"."dblock_fence"') IS NULL THEN
        CREATE TABLE "locking"."dblock_fence" (
            name text COLLATE "C" NOT NULL,
            fence bigint NOT NULL,
            CONSTRAINT "dblock_fence_pkey" PRIMARY KEY (name)
        );
        COMMENT ON TABLE "locking"."dblock_fence" IS 'The largest fence of each name that has passed dblock_gate.';
    END IF;
END $create$;

DO $create$
DECLARE
    new boolean := to_regproc('"locking"."dblock_trust"') IS NULL;
BEGIN
    CREATE OR REPLACE FUNCTION "locking"."dblock_trust"(ttl double precision, OUT epoch bigint, OUT pause double precision)
    LANGUAGE plpgsql  SET search_path = pg_catalog, pg_temp
    AS $function$
#variable_conflict use_column
DECLARE
    longest double precision;
    ignored record;
BEGIN
    FOR round IN 1..10 LOOP
        SELECT w.epoch, w.pause, w.longest INTO epoch, pause, longest
        FROM (SELECT epoch, (SELECT cause FROM "locking"."dblock_epoch"),
                extract(epoch FROM grants_from - clock_timestamp())::float8,
                CASE WHEN valid_until > clock_timestamp() THEN longest_ttl ELSE 0 END
            FROM "locking"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() + (SELECT pg_catalog.make_interval(secs => coalesce(longest_ttl, 30)) FROM "locking"."dblock_epoch")) AS w (epoch, cause, pause, longest);
        IF longest >= $1 THEN
            RETURN;
        ELSIF longest IS NULL THEN
            WITH here AS MATERIALIZED (
                SELECT (SELECT system_identifier::text || '/' || CASE WHEN NOT pg_is_in_recovery()
    THEN pg_catalog.substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END
    FROM pg_control_system()) AS server,
                    (SELECT relpersistence FROM pg_class
                        WHERE oid = '"locking"."dblock_lock"'::regclass::oid) AS lock,
                    (SELECT relpersistence FROM pg_class
                        WHERE oid = '"locking"."dblock_witness"'::regclass::oid) AS witness
            ), seen AS MATERIALIZED (
                SELECT e.xmin::text AS version, here.server,
                    e.server IS NOT DISTINCT FROM here.server AND writer = xmin::text AS same,
                    here.lock = 'p' OR e.longest_ttl IS NULL OR EXISTS (SELECT epoch FROM "locking"."dblock_witness" WHERE writer = xmin::text) AS intact
                FROM "locking"."dblock_epoch" AS e, here
                WHERE here.witness = 'u' AND NOT EXISTS (SELECT epoch FROM "locking"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() + (SELECT pg_catalog.make_interval(secs => coalesce(longest_ttl, 30)) FROM "locking"."dblock_epoch"))
            ), written AS (
                UPDATE "locking"."dblock_epoch" AS e SET server = seen.server, writer = pg_current_xact_id()::xid::text,
                    epoch = CASE WHEN same AND intact THEN e.epoch ELSE CASE WHEN (extract(epoch FROM clock_timestamp()) * 1e6)::bigint > e.epoch THEN (extract(epoch FROM clock_timestamp()) * 1e6)::bigint ELSE e.epoch + 4294967296 END END,
                    cause = CASE WHEN NOT same THEN 'failover' WHEN intact THEN e.cause
                        ELSE 'crash' END,
                    grants_from = CASE WHEN same AND intact THEN least(clock_timestamp() + pg_catalog.make_interval(secs => coalesce(longest_ttl, 30)),
                        greatest(e.grants_from, clock_timestamp())) ELSE clock_timestamp() + pg_catalog.make_interval(secs => coalesce(longest_ttl, 30)) END
                FROM seen WHERE e.xmin::text = seen.version
                RETURNING e.epoch, coalesce(e.longest_ttl, 0) AS longest_ttl, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END),
                    e.grants_from
            )
            INSERT INTO "locking"."dblock_witness"
                (id, epoch, longest_ttl, grants_from, valid_until, writer)
            SELECT 1, epoch, longest_ttl, grants_from, grants_from + interval '25 hours', pg_current_xact_id()::xid::text
            FROM written
            ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, writer = excluded.writer,
                longest_ttl = excluded.longest_ttl, grants_from = excluded.grants_from,
                valid_until = excluded.valid_until
            RETURNING epoch INTO ignored;
        ELSE
            IF current_setting('synchronous_standby_names') <> '' AND EXISTS (
                SELECT FROM pg_class WHERE oid = '"locking"."dblock_lock"'::regclass::oid
                    AND relpersistence = 'u'
            ) THEN
                RAISE object_not_in_prerequisite_state USING
                    MESSAGE = 'the lock table is volatile and the server has synchronous standbys: '
                        'there no function can record a TTL that is longer than all before',
                    HINT = 'Make the table durable: dblock upgrade --durability durable';
            END IF;
            UPDATE "locking"."dblock_epoch" AS e
            SET longest_ttl = greatest(e.longest_ttl, $1), writer = pg_current_xact_id()::xid::text
            WHERE EXISTS (SELECT epoch FROM "locking"."dblock_witness" WHERE writer = xmin::text) RETURNING pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END) INTO ignored;
            WITH announced AS MATERIALIZED (
                SELECT FROM "locking"."dblock_epoch" AS e
                WHERE e.id = 1 AND e.longest_ttl >= $1 FOR UPDATE
            ), seen AS MATERIALIZED (
                SELECT w.longest_ttl AS granted,
                    coalesce(w.valid_until <= clock_timestamp(), true) AS lapsed
                FROM announced, "locking"."dblock_witness" AS w
                WHERE w.id = 1 AND w.writer = w.xmin::text FOR UPDATE OF w
            ), recorded AS (
                UPDATE "locking"."dblock_epoch" AS e SET writer = pg_current_xact_id()::xid::text,
                    longest_ttl = CASE WHEN lapsed
                        THEN greatest($1, granted, CASE WHEN e.longest_ttl <= granted THEN 0
            WHEN pg_relation_size('"locking"."dblock_lock"'::regclass) > 67108864 THEN e.longest_ttl
            ELSE least(e.longest_ttl, coalesce((
                SELECT max(extract(epoch FROM expires_at - clock_timestamp()))::float8
                FROM "locking"."dblock_lock" WHERE token IS NOT NULL), 0)) END) ELSE e.longest_ttl END
                FROM seen WHERE e.id = 1
                RETURNING lapsed, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)
            )
            UPDATE "locking"."dblock_witness" AS w SET writer = pg_current_xact_id()::xid::text,
                longest_ttl = greatest($1, CASE WHEN NOT lapsed THEN w.longest_ttl END),
                valid_until = CASE WHEN lapsed THEN clock_timestamp() + interval '25 hours'
                    ELSE w.valid_until END
            FROM recorded WHERE w.id = 1;
        END IF;
        IF EXISTS (SELECT FROM "locking"."dblock_witness" WHERE writer = pg_current_xact_id()::xid::text AND writer <> xmin::text UNION ALL SELECT FROM "locking"."dblock_epoch" WHERE writer = pg_current_xact_id()::xid::text AND writer <> xmin::text) THEN
            RAISE active_sql_transaction USING
                MESSAGE = 'the function has to record a TTL, or that a crash was noticed, and it '
                    'cannot do that in a savepoint',
                HINT = 'Call it once, with the same TTL, outside savepoints and exception blocks';
        END IF;
    END LOOP;
    RAISE object_not_in_prerequisite_state USING
        MESSAGE = 'the witness cannot be written: its table has to be UNLOGGED';
END $function$;
    IF new THEN
        REVOKE ALL ON FUNCTION "locking"."dblock_trust"(double precision) FROM PUBLIC;
    END IF;
    COMMENT ON FUNCTION "locking"."dblock_trust"(double precision) IS 'Reads dblock''s witness, and writes it where it is missing, for the other functions. (dblock d1f2051b)';
END $create$;

DO $create$
DECLARE
    new boolean := to_regproc('"locking"."dblock_renew"') IS NULL;
BEGIN
    CREATE OR REPLACE FUNCTION "locking"."dblock_renew"(name text, token text, ttl double precision, OUT fence bigint, OUT expires_in double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '5s' SET search_path = pg_catalog, pg_temp
    AS $function$
#variable_conflict use_column
DECLARE
    state record;
    known record;
    ignored record;
    renewed boolean;
BEGIN
    IF $1 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a lock name cannot be NULL';
    ELSIF char_length($1) NOT BETWEEN 1 AND 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'a lock name has 1 to 255 characters, this one has %s', char_length($1)),
            HINT = 'Shorten it, or use a hash of it';
    END IF;
    IF $2 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a token cannot be NULL';
    ELSIF $2 !~ '^[0-9a-f]{32}$' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'a token has 32 hexadecimal digits, in lower case',
            HINT = 'Make a random one for each hold, before the first call';
    END IF;
    IF $3 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a TTL cannot be NULL';
    ELSIF $3 NOT BETWEEN 0.1 AND 31622400 THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'a TTL is 0.1 seconds to 366 days (31622400 seconds), not %s', $3),
            HINT = 'Renew the lease while you hold it: then a short TTL is enough';
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE invalid_transaction_state USING MESSAGE = format(
            'a lock function needs the isolation level READ COMMITTED, and the transaction has %s',
            upper(current_setting('transaction_isolation'))),
            HINT = 'Call it in a transaction of its own, or BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
    FOR round IN 1..10 LOOP
        WITH present AS MATERIALIZED (SELECT epoch FROM "locking"."dblock_witness" WHERE writer = xmin::text AND longest_ttl >= $3 AND valid_until > clock_timestamp()
            ), mine AS MATERIALIZED (
                SELECT k.lock_name, k.expires_at, asked.token, asked.ttl FROM unnest(
                    (SELECT ARRAY[$1]::text[]), (SELECT ARRAY[$2]::text[]),
                    (SELECT ARRAY[$3]::float8[])
                ) AS asked (lock_name, token, ttl)
                JOIN "locking"."dblock_lock" AS k
                    ON k.lock_name = asked.lock_name AND k.token = asked.token
                JOIN present ON k.fence > present.epoch
                FOR NO KEY UPDATE OF k SKIP LOCKED
            )
            UPDATE "locking"."dblock_lock" AS l
            SET expires_at = greatest(
                clock_timestamp() + pg_catalog.make_interval(secs => mine.ttl),
                CASE WHEN SUBSTR(l.token, 1, 6) = 'shared' THEN mine.expires_at END)
            FROM mine WHERE l.lock_name = mine.lock_name AND l.token = mine.token
                AND mine.expires_at > clock_timestamp()
            RETURNING l.token, l.fence, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END),
                CASE WHEN l.expires_at < mine.expires_at THEN CASE WHEN waiters IS NOT NULL THEN (
    SELECT pg_notify('dblock_' || pg_catalog.left(entry, 8), pg_catalog.left(entry, 12))
    FROM pg_catalog.unnest(waiters) AS entry WHERE (entry NOT LIKE '00000000%' AND NOT pg_try_advisory_xact_lock_shared(
    1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)) LIMIT 1) END END INTO ignored;
        renewed := FOUND;
        SELECT * INTO state FROM (SELECT lock_name, fence, token, owner, acquired_at, expires_at, extract(epoch FROM expires_at - clock_timestamp())::float8, readers FROM "locking"."dblock_lock" WHERE lock_name = $1) AS l (lock_name, fence, token, owner, acquired_at, expires_at, remaining, readers)
        WHERE l.token = $2 AND l.remaining > 0;
        IF NOT FOUND THEN
            RETURN;
        ELSIF renewed THEN
            fence := state.fence;
            expires_in := state.remaining;
            RETURN;
        END IF;
        SELECT * INTO known FROM "locking"."dblock_trust"($3);
        IF state.fence <= known.epoch THEN
            RETURN;
        END IF;
        -- Its row was in use, or the witness did not know of the TTL.
        PERFORM FROM "locking"."dblock_lock" WHERE lock_name = $1 FOR NO KEY UPDATE;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = format('the row of %L is in use', $1);
END $function$;
    IF new THEN
        REVOKE ALL ON FUNCTION "locking"."dblock_renew"(text, text, double precision) FROM PUBLIC;
    END IF;
    COMMENT ON FUNCTION "locking"."dblock_renew"(text, text, double precision) IS 'Sets a lease to expire in ttl seconds; returns NULL if the lease is lost. (dblock d1f2051b)';
END $create$;

DO $create$
DECLARE
    new boolean := to_regproc('"locking"."dblock_acquire"') IS NULL;
BEGIN
    CREATE OR REPLACE FUNCTION "locking"."dblock_acquire"(name text, token text, owner text, ttl double precision, OUT fence bigint, OUT expires_in double precision, OUT holder text, OUT frees_in double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '5s' SET search_path = pg_catalog, pg_temp
    AS $function$
#variable_conflict use_column
DECLARE
    state record;
    pause double precision;
    ignored text;
BEGIN
    IF $1 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a lock name cannot be NULL';
    ELSIF char_length($1) NOT BETWEEN 1 AND 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'a lock name has 1 to 255 characters, this one has %s', char_length($1)),
            HINT = 'Shorten it, or use a hash of it';
    END IF;
    IF $2 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a token cannot be NULL';
    ELSIF $2 !~ '^[0-9a-f]{32}$' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'a token has 32 hexadecimal digits, in lower case',
            HINT = 'Make a random one for each hold, before the first call';
    END IF;
    IF $3 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'an owner cannot be NULL',
            HINT = 'Give the host, the process and its purpose: people read it';
    ELSIF char_length($3) > 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'an owner has at most 255 characters, this one has %s', char_length($3)),
            HINT = 'Shorten it';
    END IF;
    IF $4 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a TTL cannot be NULL';
    ELSIF $4 NOT BETWEEN 0.1 AND 31622400 THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'a TTL is 0.1 seconds to 366 days (31622400 seconds), not %s', $4),
            HINT = 'Renew the lease while you hold it: then a short TTL is enough';
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE invalid_transaction_state USING MESSAGE = format(
            'a lock function needs the isolation level READ COMMITTED, and the transaction has %s',
            upper(current_setting('transaction_isolation'))),
            HINT = 'Call it in a transaction of its own, or BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended($2, 0));
    UPDATE "locking"."dblock_lock" AS l SET fence = greatest(l.fence, mine.epoch) + 1,
                    token = $2, owner = $3, acquired_at = clock_timestamp(),
                    expires_at = clock_timestamp() + pg_catalog.make_interval(secs => $4)
                FROM (
                    SELECT k.ctid, open.epoch FROM (SELECT epoch FROM "locking"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= $4 AND valid_until > clock_timestamp()) AS open, "locking"."dblock_lock" AS k
                    WHERE lock_name = $1 AND waiters IS NULL AND (token IS NULL OR expires_at <= clock_timestamp())
                    FOR UPDATE OF k SKIP LOCKED
                ) AS mine WHERE l.ctid = mine.ctid
                RETURNING fence, extract(epoch FROM expires_at - clock_timestamp())::float8, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END) INTO fence, expires_in, ignored;
    IF FOUND THEN
        RETURN;
    END IF;
    FOR round IN 1..2 LOOP
        SELECT * INTO state FROM (SELECT lock_name, fence, token, owner, acquired_at, expires_at, extract(epoch FROM expires_at - clock_timestamp())::float8, readers FROM "locking"."dblock_lock" WHERE lock_name = $1) AS l (lock_name, fence, token, owner, acquired_at, expires_at, remaining, readers);
        IF state.token = $2 AND state.remaining > 0 THEN
            SELECT r.fence, r.expires_in INTO fence, expires_in
            FROM "locking"."dblock_renew"($1, $2, $4) AS r;
            IF fence IS NOT NULL THEN
                RETURN;
            END IF;
        ELSIF state.token IS NOT NULL AND state.remaining > 0 THEN
            holder := state.owner;
            frees_in := state.remaining;
            RETURN;
        END IF;
        EXIT WHEN round = 2;
        SELECT t.pause INTO pause FROM "locking"."dblock_trust"($4) AS t;
        IF pause > 0 THEN
            frees_in := pause;
            RETURN;
        END IF;
        WITH taken AS (
                UPDATE "locking"."dblock_lock" AS l SET fence = greatest(l.fence, mine.epoch) + 1, waiters = CASE WHEN waiters IS NOT NULL THEN (
                        SELECT pg_catalog.array_agg(entry ORDER BY number) FROM pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE  (entry NOT LIKE '00000000%' AND NOT pg_try_advisory_xact_lock_shared(
    1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int))
                    ) END,
                    token = $2, owner = $3, acquired_at = clock_timestamp(),
                    expires_at = clock_timestamp() + pg_catalog.make_interval(secs => $4)
                FROM (
                    SELECT k.ctid, open.epoch FROM (SELECT epoch FROM "locking"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= $4 AND valid_until > clock_timestamp()) AS open, "locking"."dblock_lock" AS k
                    WHERE lock_name = $1 AND (expires_at IS NULL OR token IS NULL AND expires_at > clock_timestamp() OR expires_at + (CASE WHEN waiters IS NULL THEN 0 ELSE (SELECT count(*) FROM pg_catalog.unnest(waiters) AS entry WHERE (entry LIKE '00000000%' OR (entry NOT LIKE '00000000%' AND NOT pg_try_advisory_xact_lock_shared(
    1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)))) END)::float8 * interval '0.4 s' <= clock_timestamp())
                    FOR UPDATE OF k SKIP LOCKED
                ) AS mine WHERE l.ctid = mine.ctid
                RETURNING fence, extract(epoch FROM expires_at - clock_timestamp())::float8, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)
            ), created AS (
                INSERT INTO "locking"."dblock_lock"
                    (lock_name, fence, token, owner, acquired_at, expires_at)
                SELECT $1, greatest(open.epoch, COALESCE((SELECT fence FROM "locking"."dblock_lock" WHERE lock_name = ''), 0)) + 1, $2, $3, clock_timestamp(),
                    clock_timestamp() + pg_catalog.make_interval(secs => $4)
                FROM (SELECT epoch FROM "locking"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= $4 AND valid_until > clock_timestamp()) AS open
                WHERE NOT EXISTS (TABLE taken)
                    AND NOT EXISTS (SELECT FROM "locking"."dblock_lock" WHERE lock_name = $1)
                ON CONFLICT (lock_name) DO NOTHING RETURNING fence, extract(epoch FROM expires_at - clock_timestamp())::float8, pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END)
            )
            TABLE taken UNION ALL TABLE created INTO fence, expires_in, ignored;
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
    frees_in := 0;
END $function$;
    IF new THEN
        REVOKE ALL ON FUNCTION "locking"."dblock_acquire"(text, text, text, double precision) FROM PUBLIC;
    END IF;
    COMMENT ON FUNCTION "locking"."dblock_acquire"(text, text, text, double precision) IS 'Takes a lease, or tells the holder; with the token of a hold renews that. (dblock d1f2051b)';
END $create$;

DO $create$
DECLARE
    new boolean := to_regproc('"locking"."dblock_release"') IS NULL;
BEGIN
    CREATE OR REPLACE FUNCTION "locking"."dblock_release"(name text, token text, OUT released boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '5s' SET search_path = pg_catalog, pg_temp
    AS $function$
#variable_conflict use_column
DECLARE
    ignored record;
BEGIN
    IF $1 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a lock name cannot be NULL';
    ELSIF char_length($1) NOT BETWEEN 1 AND 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'a lock name has 1 to 255 characters, this one has %s', char_length($1)),
            HINT = 'Shorten it, or use a hash of it';
    END IF;
    IF $2 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a token cannot be NULL';
    ELSIF $2 !~ '^[0-9a-f]{32}$' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'a token has 32 hexadecimal digits, in lower case',
            HINT = 'Make a random one for each hold, before the first call';
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE invalid_transaction_state USING MESSAGE = format(
            'a lock function needs the isolation level READ COMMITTED, and the transaction has %s',
            upper(current_setting('transaction_isolation'))),
            HINT = 'Call it in a transaction of its own, or BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended($2, 0));
    UPDATE "locking"."dblock_lock" SET token = NULL, expires_at = clock_timestamp()
            WHERE lock_name = $1 AND token = $2 AND waiters IS NULL AND true
            RETURNING NULL INTO ignored;
    released := FOUND;
    IF NOT released THEN
        WITH newest AS MATERIALIZED (
                SELECT lock_name, waiters FROM "locking"."dblock_lock"
                WHERE lock_name = $1 AND token = $2 AND true
                FOR NO KEY UPDATE
            ), first AS MATERIALIZED (
                SELECT entry, number FROM newest, pg_catalog.unnest(waiters) WITH ORDINALITY AS queue (entry, number) WHERE (entry LIKE '00000000%' OR (entry NOT LIKE '00000000%' AND NOT pg_try_advisory_xact_lock_shared(
    1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int))) LIMIT 1
            ), next AS MATERIALIZED (
                SELECT entry, number, epoch
                FROM first, LATERAL (SELECT epoch FROM "locking"."dblock_witness" WHERE writer = xmin::text AND grants_from <= clock_timestamp() AND longest_ttl >= (pg_catalog.substr(first.entry, 57, 4)::float8 / 1000::float8) AND valid_until > clock_timestamp()) AS open
                WHERE true AND pg_catalog.length(entry) > 24
                    AND entry NOT LIKE '00000000%'
            )
            UPDATE "locking"."dblock_lock" AS l SET
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
    FROM pg_catalog.unnest(l.waiters) AS entry WHERE (entry NOT LIKE '00000000%' AND NOT pg_try_advisory_xact_lock_shared(
    1684171883, ('x' || pg_catalog.left(entry, 8))::bit(32)::int)) LIMIT 1) END
                ELSE pg_notify('dblock_' || pg_catalog.left(next.entry, 8), pg_catalog.concat_ws(' ',
                    pg_catalog.left(next.entry, 24), l.fence,
                    extract(epoch FROM l.acquired_at),
                    extract(epoch FROM l.expires_at - l.acquired_at))) END,
                CASE WHEN next.entry IS NULL THEN NULL ELSE pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END, CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END) END INTO ignored;
        released := FOUND;
    END IF;
END $function$;
    IF new THEN
        REVOKE ALL ON FUNCTION "locking"."dblock_release"(text, text) FROM PUBLIC;
    END IF;
    COMMENT ON FUNCTION "locking"."dblock_release"(text, text) IS 'Releases a lease, to the first waiter; returns false if the token does not have it. (dblock d1f2051b)';
END $create$;

DO $create$
DECLARE
    new boolean := to_regproc('"locking"."dblock_show"') IS NULL;
BEGIN
    CREATE OR REPLACE FUNCTION "locking"."dblock_show"(name text, OUT holder text, OUT fence bigint, OUT since timestamptz, OUT expires_in double precision, OUT waiters bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET lock_timeout = '5s' SET search_path = pg_catalog, pg_temp
    AS $function$
#variable_conflict use_column
DECLARE
    state record;
BEGIN
    IF $1 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a lock name cannot be NULL';
    ELSIF char_length($1) NOT BETWEEN 1 AND 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'a lock name has 1 to 255 characters, this one has %s', char_length($1)),
            HINT = 'Shorten it, or use a hash of it';
    END IF;
    SELECT * INTO state FROM (SELECT lock_name, fence, token, owner, acquired_at, expires_at, extract(epoch FROM expires_at - clock_timestamp())::float8, readers FROM "locking"."dblock_lock" WHERE lock_name = $1) AS l (lock_name, fence, token, owner, acquired_at, expires_at, remaining, readers);
    fence := coalesce(state.fence, 0);
    IF state.token IS NOT NULL AND state.remaining > 0 THEN
        holder := state.owner;
        since := state.acquired_at;
        expires_in := state.remaining;
    END IF;
    SELECT count(*) INTO waiters FROM (SELECT lock_name, owner, strategy, since, -extract(epoch FROM since - clock_timestamp())::float8
            FROM "locking"."dblock_waiter" WHERE expires_at > clock_timestamp() AND lock_name = $1 ORDER BY since, id) AS w;
END $function$;
    IF new THEN
        REVOKE ALL ON FUNCTION "locking"."dblock_show"(text) FROM PUBLIC;
    END IF;
    COMMENT ON FUNCTION "locking"."dblock_show"(text) IS 'Tells the holder of a name, NULL if it is free, and how many processes wait for it. (dblock d1f2051b)';
END $create$;

DO $create$
DECLARE
    new boolean := to_regproc('"locking"."dblock_gate"') IS NULL;
BEGIN
    CREATE OR REPLACE FUNCTION "locking"."dblock_gate"(name text, fence bigint, OUT newest bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $function$
#variable_conflict use_column
BEGIN
    IF $1 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a lock name cannot be NULL';
    ELSIF char_length($1) NOT BETWEEN 1 AND 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'a lock name has 1 to 255 characters, this one has %s', char_length($1)),
            HINT = 'Shorten it, or use a hash of it';
    END IF;
    IF $2 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a fence cannot be NULL';
    ELSIF $2 < 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('a fence is at least 1, not %s', $2);
    END IF;
    INSERT INTO "locking"."dblock_fence" AS seen (name, fence) VALUES ($1, $2)
            ON CONFLICT (name) DO UPDATE SET fence = greatest(seen.fence, excluded.fence)
            RETURNING fence INTO newest;
    IF newest > $2 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK001',
            MESSAGE = format('fence %s of %L is stale: fence %s has passed, so another process has '
                'held the lock since', $2, $1, newest),
            HINT = 'Roll this transaction back';
    END IF;
END $function$;
    IF new THEN
        REVOKE ALL ON FUNCTION "locking"."dblock_gate"(text, bigint) FROM PUBLIC;
    END IF;
    COMMENT ON FUNCTION "locking"."dblock_gate"(text, bigint) IS 'Lets a fence pass, in the transaction that writes; fails if a larger one has passed. (dblock d1f2051b)';
END $create$;

DROP FUNCTION IF EXISTS "locking"."dblock_trust";

DROP FUNCTION IF EXISTS "locking"."dblock_renew";

DROP FUNCTION IF EXISTS "locking"."dblock_acquire";

DROP FUNCTION IF EXISTS "locking"."dblock_release";

DROP FUNCTION IF EXISTS "locking"."dblock_show";

DROP FUNCTION IF EXISTS "locking"."dblock_gate";

DO $drop$
BEGIN
    IF obj_description(to_regclass('"locking"."dblock_fence"')::oid, 'pg_class') = 'The largest fence of each name that has passed dblock_gate.' THEN
        DROP TABLE "locking"."dblock_fence";
    END IF;
END $drop$;

