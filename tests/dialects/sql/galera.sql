-- grant, waits 0 s
BEGIN NOT ATOMIC
    DECLARE floor BIGINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    INSERT IGNORE INTO `shop`.`dblock_guard` (lock_name) VALUES (%(name)s);
    INSERT IGNORE INTO `shop`.`dblock_lock` (lock_name, fence) VALUES (%(name)s, 0);
    IF ROW_COUNT() = 1 THEN
        SELECT fence INTO floor FROM `shop`.`dblock_lock` WHERE lock_name = '';
        UPDATE `shop`.`dblock_lock` SET fence = floor WHERE lock_name = %(name)s;
    END IF;
    UPDATE `shop`.`dblock_guard` AS g STRAIGHT_JOIN `shop`.`dblock_lock` AS l
    ON l.lock_name = g.lock_name
SET writes = COALESCE(writes, 0) + 1, fence = LAST_INSERT_ID(fence + 1),
    token = %(token)s, owner = %(owner)s, waiters = NULL,
    acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE g.lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL (COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) + (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
AND COALESCE(IS_USED_LOCK(SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE()))) <> CONNECTION_ID(), FALSE))) * 400000 MICROSECOND <= UTC_TIMESTAMP(6));
    COMMIT;
    SELECT fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, token FROM `shop`.`dblock_lock`
        WHERE lock_name = %(name)s;
END

-- grant, waits 0 s
UPDATE `shop`.`dblock_guard` AS g STRAIGHT_JOIN `shop`.`dblock_lock` AS l
    ON l.lock_name = g.lock_name
SET writes = COALESCE(writes, 0) + 1, fence = LAST_INSERT_ID(fence + 1),
    token = %(token)s, owner = %(owner)s, waiters = NULL,
    acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE g.lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL (COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) + (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
AND COALESCE(IS_USED_LOCK(SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE()))) <> CONNECTION_ID(), FALSE))) * 400000 MICROSECOND <= UTC_TIMESTAMP(6))

-- grant_slot, waits 0 s
BEGIN NOT ATOMIC
    DECLARE slot VARBINARY(1020);
    DECLARE ended, taken BOOL DEFAULT FALSE;
    DECLARE slots CURSOR FOR
        WITH RECURSIVE numbers AS (
            SELECT 0 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < %(limit)s
        )
        SELECT l.lock_name FROM numbers STRAIGHT_JOIN `shop`.`dblock_lock` AS l
        ON l.lock_name = CONCAT(%(name)s, '#', 1 + (%(first)s + n) MOD %(limit)s)
        WHERE (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (SELECT value FROM `shop`.`dblock_value` WHERE lock_name = %(name)s AND fence = 0)
    = %(value)s
AND NOT EXISTS (SELECT 1 FROM (SELECT 1 FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s AND (NOT (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (token IS NULL OR token <> %(turnstile)s) OR (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
AND COALESCE(IS_USED_LOCK(SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE()))) <> CONNECTION_ID(), FALSE))) LIMIT 1) AS turnstile)
        ORDER BY n;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;
    DECLARE CONTINUE HANDLER FOR 1205 SET taken = FALSE;
    OPEN slots;
    every: LOOP
        FETCH slots INTO slot;
        IF ended THEN LEAVE every; END IF;
        SET taken = TRUE;
        UPDATE `shop`.`dblock_guard` AS g STRAIGHT_JOIN `shop`.`dblock_lock` AS l
    ON l.lock_name = g.lock_name
SET writes = COALESCE(writes, 0) + 1, fence = LAST_INSERT_ID(fence + 1),
    token = %(token)s, owner = %(owner)s, waiters = NULL,
    acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE g.lock_name = slot AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6));
        IF taken AND ROW_COUNT() > 0 THEN LEAVE every; END IF;
    END LOOP;
    CLOSE slots;
    SELECT fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, lock_name FROM `shop`.`dblock_lock`
        WHERE lock_name = slot AND token = %(token)s AND NOT ended;
END

-- grant_slot, waits 0 s
UPDATE `shop`.`dblock_guard` AS g STRAIGHT_JOIN `shop`.`dblock_lock` AS l
    ON l.lock_name = g.lock_name
SET writes = COALESCE(writes, 0) + 1, fence = LAST_INSERT_ID(fence + 1),
    token = %(token)s, owner = %(owner)s, waiters = NULL,
    acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE g.lock_name = %(slot)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (SELECT value FROM `shop`.`dblock_value` WHERE lock_name = %(name)s AND fence = 0)
    = %(value)s
AND NOT EXISTS (SELECT 1 FROM (SELECT 1 FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s AND (NOT (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (token IS NULL OR token <> %(turnstile)s) OR (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
AND COALESCE(IS_USED_LOCK(SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE()))) <> CONNECTION_ID(), FALSE))) LIMIT 1) AS turnstile)

-- join, waits 0 s
BEGIN NOT ATOMIC
            DECLARE free, noted INT DEFAULT 0;
            SELECT (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)), readers IS NOT NULL INTO free, noted FROM `shop`.`dblock_lock`
                WHERE lock_name = %(name)s;
            IF free THEN
                UPDATE `shop`.`dblock_guard` AS g STRAIGHT_JOIN `shop`.`dblock_lock` AS l
            ON l.lock_name = g.lock_name
        SET writes = COALESCE(writes, 0) + 1, fence = LAST_INSERT_ID(fence + 1),
            token = %(token)s, owner = %(owner)s, waiters = IF(LOCATE(%(ticket)s, waiters), NULLIF(
SUBSTRING(waiters, LOCATE(%(ticket)s, waiters) + 25), ''), NULL),
            acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
        WHERE g.lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6));
            ELSE
                UPDATE `shop`.`dblock_lock`
                    SET waiters = CONCAT_WS(',', waiters, %(ticket)s)
                    WHERE lock_name = %(name)s AND NOT (LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0)
                        AND NOT token <=> %(token)s;
            END IF;
            SELECT fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, token, lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers,
                CASE WHEN (LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0) THEN IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) END, (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6))
                FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s;
        END

-- attach, waits 0 s
UPDATE `shop`.`dblock_guard` AS g STRAIGHT_JOIN `shop`.`dblock_lock` AS l
    ON l.lock_name = g.lock_name
SET writes = COALESCE(writes, 0) + 1, fence = LAST_INSERT_ID(fence),
    token = %(new_token)s, owner = %(owner)s, expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE g.lock_name = %(name)s AND token = %(token)s AND expires_at > SYSDATE(6)

-- look, waits 0 s
SET STATEMENT wsrep_sync_wait = 1 FOR SELECT lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE `shop`.`dblock_guard`.lock_name = `shop`.`dblock_lock`.lock_name))


-- look, waits 0 s
SET STATEMENT wsrep_sync_wait = 1 FOR SELECT lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers FROM `shop`.`dblock_lock` WHERE lock_name IN (%(name0)s, %(name1)s) AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE `shop`.`dblock_guard`.lock_name = `shop`.`dblock_lock`.lock_name))


-- look_queued, waits 0 s
SET STATEMENT wsrep_sync_wait = 1 FOR SELECT lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers, CASE WHEN (LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0) THEN IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) END, (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6))
FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE `shop`.`dblock_guard`.lock_name = `shop`.`dblock_lock`.lock_name))

-- lock_row, waits 2.5 s
SET STATEMENT /*M!110402 innodb_snapshot_isolation = OFF, */ innodb_lock_wait_timeout = 4, max_statement_time = 2.500 FOR
UPDATE `shop`.`dblock_guard` AS g STRAIGHT_JOIN `shop`.`dblock_lock` AS l
    ON l.lock_name = g.lock_name
SET writes = COALESCE(writes, 0) + 1, l.fence = l.fence
WHERE g.lock_name = UNHEX(%(name)s)
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6))

-- lock_row, waits 2.5 s
SET STATEMENT /*M!110402 innodb_snapshot_isolation = OFF, */ innodb_lock_wait_timeout = 4, max_statement_time = 2.500 FOR
UPDATE `shop`.`dblock_guard` AS g STRAIGHT_JOIN `shop`.`dblock_lock` AS l
    ON l.lock_name = g.lock_name
SET writes = COALESCE(writes, 0) + 1, l.fence = l.fence
WHERE g.lock_name = UNHEX(%(name)s)
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6)) AND EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef')

-- lock_row, waits 0 s
SET STATEMENT /*M!110402 innodb_snapshot_isolation = OFF, */ innodb_lock_wait_timeout = 0 FOR
UPDATE `shop`.`dblock_guard` AS g STRAIGHT_JOIN `shop`.`dblock_lock` AS l
    ON l.lock_name = g.lock_name
SET writes = COALESCE(writes, 0) + 1, l.fence = l.fence
WHERE g.lock_name = UNHEX(%(name)s)
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6))

-- lock_row, waits 0 s
SET STATEMENT /*M!110402 innodb_snapshot_isolation = OFF, */ innodb_lock_wait_timeout = 0 FOR
UPDATE `shop`.`dblock_guard` AS g STRAIGHT_JOIN `shop`.`dblock_lock` AS l
    ON l.lock_name = g.lock_name
SET writes = COALESCE(writes, 0) + 1, l.fence = l.fence
WHERE g.lock_name = UNHEX(%(name)s)
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6)) AND EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef')

-- lock_row, waits 5 s
SET STATEMENT /*M!110402 innodb_snapshot_isolation = OFF, */ innodb_lock_wait_timeout = 6, max_statement_time = 5.000 FOR
UPDATE `shop`.`dblock_guard` AS g STRAIGHT_JOIN `shop`.`dblock_lock` AS l
    ON l.lock_name = g.lock_name
SET writes = COALESCE(writes, 0) + 1, l.fence = l.fence
WHERE g.lock_name = UNHEX(%(name)s)
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6))

-- guard, waits 5 s
SET STATEMENT /*M!110402 innodb_snapshot_isolation = OFF, */ innodb_lock_wait_timeout = 5 FOR
UPDATE `shop`.`dblock_guard` SET writes = COALESCE(writes, 0) + 1
WHERE lock_name = UNHEX(%(name)s) AND EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef')

-- vote, waits 0 s
BEGIN NOT ATOMIC
    DECLARE floor BIGINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    INSERT IGNORE INTO `shop`.`dblock_guard` (lock_name) VALUES (%(name)s);
    INSERT IGNORE INTO `shop`.`dblock_lock` (lock_name, fence) VALUES (%(name)s, 0);
    IF ROW_COUNT() = 1 THEN
        SELECT fence INTO floor FROM `shop`.`dblock_lock` WHERE lock_name = '';
        UPDATE `shop`.`dblock_lock` SET fence = floor WHERE lock_name = %(name)s;
    END IF;
    UPDATE `shop`.`dblock_guard` AS g STRAIGHT_JOIN `shop`.`dblock_lock` AS l
    ON l.lock_name = g.lock_name
SET writes = COALESCE(writes, 0) + 1, fence = LAST_INSERT_ID(fence + 1),
    token = %(token)s, owner = %(owner)s, waiters = NULL,
    acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE g.lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL (COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) + (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
AND COALESCE(IS_USED_LOCK(SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE()))) <> CONNECTION_ID(), FALSE))) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND EXISTS (SELECT 1 FROM `shop`.`dblock_value` AS v WHERE v.lock_name = ''
    AND v.written_at <= UTC_TIMESTAMP(6) AND v.value = CONCAT('"', %(members)s, ' "')
    AND v.fence >= %(longest)s);
    COMMIT;
    SELECT fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, token FROM `shop`.`dblock_lock`
        WHERE lock_name = %(name)s;
END
