-- grant, waits 1 s
START TRANSACTION;
-- then
INSERT IGNORE INTO `shop`.`dblock_guard` (lock_name) SELECT %(name)s FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE lock_name = %(name)s);
-- then
INSERT IGNORE INTO `shop`.`dblock_lock` (lock_name, fence) SELECT %(name)s, 0 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s);
-- then
SELECT ROW_COUNT(), COALESCE((SELECT fence FROM `shop`.`dblock_lock` WHERE lock_name = ''), 0) INTO @dblock_made, @dblock_floor;
-- then
UPDATE `shop`.`dblock_lock` SET fence = @dblock_floor
                WHERE lock_name = IF(@dblock_made = 1, %(name)s, NULL);
-- then
UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence + 1),
                token = %(token)s, owner = %(owner)s, waiters = NULL,
                acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
            WHERE lock_name = (SELECT /*+ NO_MERGE(mine) */ lock_name FROM (
                SELECT l.lock_name FROM `shop`.`dblock_lock` AS l
                WHERE l.lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL (COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) + (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
            AND COALESCE(IS_USED_LOCK(SHA2(CONCAT_WS('/', %(user_lock)s, DATABASE()), 256)) <> CONNECTION_ID(), FALSE))) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (SELECT 1 FROM `shop`.`dblock_guard` AS g WHERE g.lock_name = l.lock_name FOR UPDATE SKIP LOCKED)
                FOR UPDATE OF l SKIP LOCKED
            ) AS mine);
-- then
SELECT NOT token <=> %(token)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL (COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) + (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
            AND COALESCE(IS_USED_LOCK(SHA2(CONCAT_WS('/', %(user_lock)s, DATABASE()), 256)) <> CONNECTION_ID(), FALSE))) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)), fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, token
                FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s;
-- then
COMMIT

-- grant, waits 1 s
UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence + 1),
    token = %(token)s, owner = %(owner)s, waiters = NULL,
    acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE lock_name = (SELECT /*+ NO_MERGE(mine) */ lock_name FROM (
    SELECT l.lock_name FROM `shop`.`dblock_lock` AS l
    WHERE l.lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL (COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) + (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
AND COALESCE(IS_USED_LOCK(SHA2(CONCAT_WS('/', %(user_lock)s, DATABASE()), 256)) <> CONNECTION_ID(), FALSE))) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (SELECT 1 FROM `shop`.`dblock_guard` AS g WHERE g.lock_name = l.lock_name FOR UPDATE NOWAIT)
    FOR UPDATE OF l NOWAIT
) AS mine)

-- grant_slot, waits 1 s
START TRANSACTION;
-- then
SET @dblock_slot = NULL;
-- then
WITH RECURSIVE numbers AS (
                    SELECT 0 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < %(limit)s
                ), slots AS (
                    SELECT CONCAT(%(name)s, '#', 1 + (%(first)s + n) MOD %(limit)s) AS slot
                    FROM numbers WHERE (SELECT value FROM `shop`.`dblock_value` WHERE lock_name = %(name)s AND fence = 0)
                = %(value)s
            AND NOT EXISTS (SELECT 1 FROM (SELECT 1 FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s AND (NOT (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (token IS NULL OR token <> %(turnstile)s) OR (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
            AND COALESCE(IS_USED_LOCK(SHA2(CONCAT_WS('/', %(user_lock)s, DATABASE()), 256)) <> CONNECTION_ID(), FALSE))) LIMIT 1) AS turnstile) ORDER BY n LIMIT %(limit)s
                )
                SELECT l.lock_name FROM slots STRAIGHT_JOIN `shop`.`dblock_lock` AS l
                    FORCE INDEX (PRIMARY) ON l.lock_name = slots.slot
                WHERE (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (SELECT 1 FROM `shop`.`dblock_guard` AS g WHERE g.lock_name = l.lock_name FOR UPDATE SKIP LOCKED)
                LIMIT 1 FOR UPDATE OF l SKIP LOCKED INTO @dblock_slot;
-- then
UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence + 1),
                token = %(token)s, owner = %(owner)s, waiters = NULL,
                acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
            WHERE lock_name = (SELECT /*+ NO_MERGE(mine) */ lock_name FROM (
                SELECT l.lock_name FROM `shop`.`dblock_lock` AS l
                WHERE l.lock_name = @dblock_slot AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (SELECT 1 FROM `shop`.`dblock_guard` AS g WHERE g.lock_name = l.lock_name FOR UPDATE NOWAIT)
                FOR UPDATE OF l NOWAIT
            ) AS mine);
-- then
SELECT fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, lock_name FROM `shop`.`dblock_lock`
                WHERE lock_name = @dblock_slot AND token = %(token)s;
-- then
COMMIT

-- grant_slot, waits 1 s
UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence + 1),
    token = %(token)s, owner = %(owner)s, waiters = NULL,
    acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE lock_name = (SELECT /*+ NO_MERGE(mine) */ lock_name FROM (
    SELECT l.lock_name FROM `shop`.`dblock_lock` AS l
    WHERE l.lock_name = %(slot)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (SELECT value FROM `shop`.`dblock_value` WHERE lock_name = %(name)s AND fence = 0)
    = %(value)s
AND NOT EXISTS (SELECT 1 FROM (SELECT 1 FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s AND (NOT (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (token IS NULL OR token <> %(turnstile)s) OR (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
AND COALESCE(IS_USED_LOCK(SHA2(CONCAT_WS('/', %(user_lock)s, DATABASE()), 256)) <> CONNECTION_ID(), FALSE))) LIMIT 1) AS turnstile) AND (SELECT 1 FROM `shop`.`dblock_guard` AS g WHERE g.lock_name = l.lock_name FOR UPDATE NOWAIT)
    FOR UPDATE OF l NOWAIT
) AS mine)

-- look_at_slots, waits 1 s
SELECT (SELECT CASE WHEN fence = 0 THEN value WHEN fence < 0 THEN '-1' ELSE '0' END FROM `shop`.`dblock_value` WHERE lock_name = %(name)s), lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers, NULL, (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6))
FROM (SELECT 1 AS one) AS always LEFT JOIN `shop`.`dblock_lock`
    ON lock_name IN (%(name0)s, %(name1)s, %(name2)s) AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE `shop`.`dblock_guard`.lock_name = `shop`.`dblock_lock`.lock_name))

-- set_limit, waits 1 s
INSERT INTO `shop`.`dblock_value` (lock_name, fence, value, written_at)
VALUES (%(name)s, 0, %(value)s, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE lock_name = lock_name

-- set_limit, waits 1 s
INSERT INTO `shop`.`dblock_value` (lock_name, fence, value, written_at)
VALUES (%(name)s, 0, %(value)s, UTC_TIMESTAMP(6))
AS new ON DUPLICATE KEY
UPDATE value = IF(`shop`.`dblock_value`.fence = 0, new.value, `shop`.`dblock_value`.value),
    written_at = IF(`shop`.`dblock_value`.fence = 0, new.written_at, `shop`.`dblock_value`.written_at)

-- join, waits 1 s
START TRANSACTION;
-- then
SET @dblock_free = FALSE, @dblock_noted = FALSE, @dblock_aside = FALSE;
-- then
SELECT (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)), readers IS NOT NULL, NOT (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND FALSE
                INTO @dblock_free, @dblock_noted, @dblock_aside
                FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s;
-- then
UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence + 1),
                token = %(token)s, owner = %(owner)s, waiters = IF(LOCATE(%(ticket)s, waiters), NULLIF(
    SUBSTRING(waiters, LOCATE(%(ticket)s, waiters) + 25), ''), NULL),
                acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
            WHERE lock_name = (SELECT /*+ NO_MERGE(mine) */ lock_name FROM (
                SELECT l.lock_name FROM `shop`.`dblock_lock` AS l
                WHERE l.lock_name = IF(@dblock_free, %(name)s, NULL) AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (SELECT 1 FROM `shop`.`dblock_guard` AS g WHERE g.lock_name = l.lock_name FOR UPDATE SKIP LOCKED)
                FOR UPDATE OF l SKIP LOCKED
            ) AS mine);
-- then
UPDATE `shop`.`dblock_lock`
                SET waiters = CONCAT_WS(',', waiters, %(ticket)s)
                WHERE lock_name = IF(@dblock_free OR @dblock_aside, NULL, %(name)s)
                    AND NOT (LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0) AND NOT token <=> %(token)s;
-- then
SELECT @dblock_free AND NOT token <=> %(token)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)),
                    fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, token, lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers,
                    CASE WHEN (LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0) THEN IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) END, (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6))
                FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s;
-- then
COMMIT

-- join_readers, waits 1 s
 UPDATE `shop`.`dblock_lock` SET
    expires_at = GREATEST(expires_at, SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND), waiters = NULLIF(TRIM(BOTH ',' FROM REPLACE(
    CONCAT(',', waiters, ','), CONCAT(',', %(ticket)s, ','), ',')), ''),
    readers = CONCAT(CASE WHEN COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) THEN readers ELSE CONCAT(token, ' ', token) END, ' ', %(token)s)
WHERE lock_name = %(name)s AND token = %(group)s AND expires_at > SYSDATE(6)
    AND (%(past)s OR IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) = 0) AND NOT CASE WHEN COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) THEN REPLACE(readers, CONCAT(' ', %(token)s), '') <> readers ELSE token = %(token)s END

-- leave_readers, waits 1 s
 UPDATE `shop`.`dblock_lock` SET
    expires_at = IF(NOT COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) OR REPLACE(readers, CONCAT(' ', %(token)s), '') = token, SYSDATE(6), expires_at),
    token = IF(NOT COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) OR REPLACE(readers, CONCAT(' ', %(token)s), '') = token, NULL, token),
    readers = REPLACE(readers, CONCAT(' ', %(token)s), '')
WHERE lock_name = %(name)s AND token = %(group)s AND CASE WHEN COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) THEN REPLACE(readers, CONCAT(' ', %(token)s), '') <> readers ELSE token = %(token)s END

-- wait_in_server, waits 0.25 s
SET @dblock_held = FALSE, @dblock_shared = FALSE;
-- then
SELECT NOT IS_FREE_LOCK(SHA2(CONCAT_WS('/', %(user_lock)s, DATABASE()), 256)), COALESCE((
                    SELECT readers IS NOT NULL FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s
                ), FALSE) INTO @dblock_held, @dblock_shared;
-- then
SELECT /*+ MAX_EXECUTION_TIME(250) */ IF(NOT @dblock_shared AND GET_LOCK(SHA2(CONCAT_WS('/', %(user_lock)s, DATABASE()), 256), 2) <=> 1, @dblock_held, NULL)

-- release_and_unlock, waits 1 s
UPDATE `shop`.`dblock_lock` SET token = NULL, expires_at = SYSDATE(6)
            WHERE lock_name = %(name)s AND token = %(token)s;
-- then
SET @dblock_released = ROW_COUNT();
-- then
DO RELEASE_LOCK(SHA2(CONCAT_WS('/', %(user_lock)s, DATABASE()), 256));
-- then
SELECT 1 FROM DUAL WHERE @dblock_released = 1

-- unlock_all
DO RELEASE_ALL_LOCKS()


-- leave, waits 1 s

UPDATE `shop`.`dblock_lock` SET waiters = NULLIF(TRIM(BOTH ',' FROM REPLACE(
    CONCAT(',', waiters, ','), CONCAT(',', %(ticket)s, ','), ',')), '')
WHERE lock_name = %(name)s AND (LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0)

-- renew, waits 1 s
START TRANSACTION;
-- then
SET @dblock_holds = %(asked)s, @dblock_start = SYSDATE(6);
-- then
SELECT COUNT(*) FROM JSON_TABLE(@dblock_holds, '$[*]' COLUMNS (
                    hex VARCHAR(2040) CHARACTER SET ascii PATH '$[0]',
                    token CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
                    ttl BIGINT PATH '$[2]'
                )) AS asked STRAIGHT_JOIN `shop`.`dblock_lock` AS l FORCE INDEX (PRIMARY)
                    ON l.lock_name = UNHEX(asked.hex) AND l.token = asked.token FOR UPDATE OF l SKIP LOCKED INTO @dblock_locked;
-- then
SELECT IF(COUNT(*) = @dblock_locked, @dblock_holds, NULL) INTO @dblock_holds
                FROM JSON_TABLE(@dblock_holds, '$[*]' COLUMNS (
                    hex VARCHAR(2040) CHARACTER SET ascii PATH '$[0]',
                    token CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
                    ttl BIGINT PATH '$[2]'
                )) AS asked STRAIGHT_JOIN `shop`.`dblock_lock` AS l FORCE INDEX (PRIMARY)
                    ON l.lock_name = UNHEX(asked.hex) AND l.token = asked.token;
-- then
UPDATE JSON_TABLE(@dblock_holds, '$[*]' COLUMNS (
                    hex VARCHAR(2040) CHARACTER SET ascii PATH '$[0]',
                    token CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
                    ttl BIGINT PATH '$[2]'
                )) AS asked STRAIGHT_JOIN `shop`.`dblock_lock` AS l FORCE INDEX (PRIMARY)
                    ON l.lock_name = UNHEX(asked.hex) AND l.token = asked.token
                SET expires_at = IF(SUBSTR(l.token, 1, 6) = 'shared', GREATEST(expires_at, SYSDATE(6) + INTERVAL asked.ttl MICROSECOND), SYSDATE(6) + INTERVAL asked.ttl MICROSECOND)
                WHERE expires_at > SYSDATE(6);
-- then
SELECT COUNT(*) INTO @dblock_moved FROM JSON_TABLE(@dblock_holds, '$[*]' COLUMNS (
                    hex VARCHAR(2040) CHARACTER SET ascii PATH '$[0]',
                    token CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
                    ttl BIGINT PATH '$[2]'
                )) AS asked STRAIGHT_JOIN `shop`.`dblock_lock` AS l FORCE INDEX (PRIMARY)
                    ON l.lock_name = UNHEX(asked.hex) AND l.token = asked.token WHERE expires_at >= CAST(@dblock_start AS DATETIME(6)) + INTERVAL asked.ttl MICROSECOND;
-- then
SELECT TRUE, NULL, NULL FROM DUAL WHERE @dblock_holds IS NULL
                UNION ALL SELECT FALSE, 'all', NULL FROM DUAL WHERE @dblock_moved > 1 AND @dblock_moved = JSON_LENGTH(@dblock_holds)
                UNION ALL SELECT FALSE, l.token, l.fence FROM JSON_TABLE(@dblock_holds, '$[*]' COLUMNS (
                    hex VARCHAR(2040) CHARACTER SET ascii PATH '$[0]',
                    token CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
                    ttl BIGINT PATH '$[2]'
                )) AS asked STRAIGHT_JOIN `shop`.`dblock_lock` AS l FORCE INDEX (PRIMARY)
                    ON l.lock_name = UNHEX(asked.hex) AND l.token = asked.token WHERE expires_at >= CAST(@dblock_start AS DATETIME(6)) + INTERVAL asked.ttl MICROSECOND AND NOT (@dblock_moved > 1 AND @dblock_moved = JSON_LENGTH(@dblock_holds));
-- then
COMMIT

-- attach, waits 1 s
UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence),
    token = %(new_token)s, owner = %(owner)s, expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE lock_name = (SELECT /*+ NO_MERGE(mine) */ lock_name FROM (
    SELECT l.lock_name FROM `shop`.`dblock_lock` AS l
    WHERE l.lock_name = %(name)s AND token = %(token)s AND expires_at > SYSDATE(6) AND (SELECT 1 FROM `shop`.`dblock_guard` AS g WHERE g.lock_name = l.lock_name FOR UPDATE NOWAIT)
    FOR UPDATE OF l NOWAIT
) AS mine)

-- release, waits 1 s
UPDATE `shop`.`dblock_lock` SET token = NULL, expires_at = SYSDATE(6)
WHERE lock_name = %(name)s AND token = %(token)s

-- release, waits 1 s
UPDATE `shop`.`dblock_lock` SET token = NULL, expires_at = SYSDATE(6)
WHERE lock_name = %(name)s AND token = %(token)s

-- release, waits 1 s
UPDATE `shop`.`dblock_lock` SET token = NULL, expires_at = SYSDATE(6)
WHERE lock_name = %(name)s AND token = %(token)s

-- look_around, waits 1 s
SELECT DATABASE(), @@hostname, @@port, s.* FROM `shop`.`dblock_schema` AS s


-- look_around, waits 1 s
SELECT DATABASE(), @@hostname, @@port, s.* FROM `shop`.`dblock_schema` AS s FOR SHARE


-- look, waits 1 s
SELECT lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE `shop`.`dblock_guard`.lock_name = `shop`.`dblock_lock`.lock_name))


-- look, waits 1 s
SELECT lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers FROM `shop`.`dblock_lock` WHERE lock_name IN (%(name0)s, %(name1)s) AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE `shop`.`dblock_guard`.lock_name = `shop`.`dblock_lock`.lock_name))


-- look_queued, waits 1 s
SELECT lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers, CASE WHEN (LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0) THEN IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) END, (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6))
FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE `shop`.`dblock_guard`.lock_name = `shop`.`dblock_lock`.lock_name))

-- list_held, waits 1 s
SELECT lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers FROM `shop`.`dblock_lock`
WHERE token IS NOT NULL OR lock_name IN (SELECT lock_name FROM `shop`.`dblock_waiter` WHERE TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0) ORDER BY lock_name

-- create, waits 1 s
START TRANSACTION;
-- then
INSERT IGNORE INTO `shop`.`dblock_guard` (lock_name) SELECT %(name)s FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE lock_name = %(name)s);
-- then
INSERT IGNORE INTO `shop`.`dblock_lock` (lock_name, fence) SELECT %(name)s, 0 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s);
-- then
SELECT ROW_COUNT(), COALESCE((SELECT fence FROM `shop`.`dblock_lock` WHERE lock_name = ''), 0) INTO @dblock_made, @dblock_floor;
-- then
UPDATE `shop`.`dblock_lock` SET fence = @dblock_floor
                WHERE lock_name = IF(@dblock_made = 1, %(name)s, NULL);
-- then
COMMIT

-- lock_row, waits 2.5 s
SELECT /*+ MAX_EXECUTION_TIME(2500) */ STRAIGHT_JOIN l.fence
FROM `shop`.`dblock_guard` AS g
JOIN `shop`.`dblock_lock` AS l ON l.lock_name = g.lock_name
WHERE g.lock_name = (SELECT lock_name FROM `shop`.`dblock_lock` WHERE lock_name = UNHEX(%(name)s) AND (token IS NULL OR expires_at <= UTC_TIMESTAMP(6)))
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6))
FOR UPDATE

-- lock_row, waits 2.5 s
SELECT /*+ SET_VAR(optimizer_switch = 'subquery_to_derived=off') MAX_EXECUTION_TIME(2500) */ STRAIGHT_JOIN l.fence
FROM `shop`.`dblock_guard` AS g
JOIN `shop`.`dblock_lock` AS l ON l.lock_name = g.lock_name
WHERE g.lock_name = UNHEX(%(name)s)
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6)) AND EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' FOR SHARE NOWAIT)
FOR UPDATE

-- lock_row, waits 0 s
SELECT STRAIGHT_JOIN l.fence
FROM `shop`.`dblock_guard` AS g
JOIN `shop`.`dblock_lock` AS l ON l.lock_name = g.lock_name
WHERE g.lock_name = (SELECT lock_name FROM `shop`.`dblock_lock` WHERE lock_name = UNHEX(%(name)s) AND (token IS NULL OR expires_at <= UTC_TIMESTAMP(6)))
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6))
FOR UPDATE NOWAIT

-- lock_row, waits 0 s
SELECT /*+ SET_VAR(optimizer_switch = 'subquery_to_derived=off') */ STRAIGHT_JOIN l.fence
FROM `shop`.`dblock_guard` AS g
JOIN `shop`.`dblock_lock` AS l ON l.lock_name = g.lock_name
WHERE g.lock_name = UNHEX(%(name)s)
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6)) AND EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' FOR SHARE NOWAIT)
FOR UPDATE NOWAIT

-- lock_row, waits 0.9 s
SELECT /*+ MAX_EXECUTION_TIME(900) */ STRAIGHT_JOIN l.fence
FROM `shop`.`dblock_guard` AS g
JOIN `shop`.`dblock_lock` AS l ON l.lock_name = g.lock_name
WHERE g.lock_name = (SELECT lock_name FROM `shop`.`dblock_lock` WHERE lock_name = UNHEX(%(name)s) AND (token IS NULL OR expires_at <= UTC_TIMESTAMP(6)))
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6))
FOR UPDATE

-- guard, waits 0 s
SELECT /*+ SET_VAR(optimizer_switch = 'subquery_to_derived=off') */ 1 FROM `shop`.`dblock_guard` WHERE lock_name = UNHEX(%(name)s) AND EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' FOR SHARE NOWAIT) FOR SHARE NOWAIT


-- apply

INSERT IGNORE INTO `shop`.`dblock_applied` (idempotency_key, applied_at)
SELECT UNHEX(%(name)s), UTC_TIMESTAMP(6) FROM DUAL WHERE EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef')

-- unapply
DELETE FROM `shop`.`dblock_applied` WHERE idempotency_key = UNHEX(%(name)s)


-- gate
INSERT INTO fences (name, fence) VALUES (UNHEX(%(name)s), %(fence)s)
            AS asked (asked_name, asked_fence)
            ON DUPLICATE KEY UPDATE fence = GREATEST(fence, asked_fence);
-- then
SELECT fence FROM fences WHERE name = UNHEX(%(name)s) FOR UPDATE

-- claim_once, waits 2.5 s
SET @dblock_wait = @@innodb_lock_wait_timeout,
                innodb_lock_wait_timeout = 3;
-- then
INSERT INTO `shop`.`dblock_once` (idempotency_key, token, fingerprint, result, made_at, expires_at)
            SELECT * FROM (
                SELECT UNHEX(%(key)s), %(token)s, %(fingerprint)s, NULL,
                    UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL %(keep)s SECOND FROM DUAL WHERE EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef')
            ) AS new (idempotency_key, token, fingerprint, result, made_at, expires_at)
            ON DUPLICATE KEY UPDATE token = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.token, `shop`.`dblock_once`.token), fingerprint = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.fingerprint, `shop`.`dblock_once`.fingerprint), result = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.result, `shop`.`dblock_once`.result), made_at = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.made_at, `shop`.`dblock_once`.made_at), expires_at = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.expires_at, `shop`.`dblock_once`.expires_at);
-- then
SELECT /*+ SET_VAR(optimizer_switch = 'subquery_to_derived=off') */ token, fingerprint, result FROM `shop`.`dblock_once`
            WHERE idempotency_key = UNHEX(%(key)s) AND EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef') FOR UPDATE;
-- then
/* finally */ SET innodb_lock_wait_timeout = @dblock_wait

-- claim_once, waits 0 s
SET @dblock_wait = @@innodb_lock_wait_timeout,
                innodb_lock_wait_timeout = 1;
-- then
INSERT INTO `shop`.`dblock_once` (idempotency_key, token, fingerprint, result, made_at, expires_at)
            SELECT * FROM (
                SELECT UNHEX(%(key)s), %(token)s, %(fingerprint)s, NULL,
                    UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL %(keep)s SECOND FROM DUAL WHERE EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef')
            ) AS new (idempotency_key, token, fingerprint, result, made_at, expires_at)
            ON DUPLICATE KEY UPDATE token = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.token, `shop`.`dblock_once`.token), fingerprint = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.fingerprint, `shop`.`dblock_once`.fingerprint), result = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.result, `shop`.`dblock_once`.result), made_at = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.made_at, `shop`.`dblock_once`.made_at), expires_at = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.expires_at, `shop`.`dblock_once`.expires_at);
-- then
SELECT /*+ SET_VAR(optimizer_switch = 'subquery_to_derived=off') */ token, fingerprint, result FROM `shop`.`dblock_once`
            WHERE idempotency_key = UNHEX(%(key)s) AND EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef') FOR UPDATE;
-- then
/* finally */ SET innodb_lock_wait_timeout = @dblock_wait

-- claim_once, waits 0.9 s
SET @dblock_wait = @@innodb_lock_wait_timeout,
                innodb_lock_wait_timeout = 1;
-- then
INSERT INTO `shop`.`dblock_once` (idempotency_key, token, fingerprint, result, made_at, expires_at)
            SELECT * FROM (
                SELECT UNHEX(%(key)s), %(token)s, %(fingerprint)s, NULL,
                    UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL %(keep)s SECOND FROM DUAL WHERE EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef')
            ) AS new (idempotency_key, token, fingerprint, result, made_at, expires_at)
            ON DUPLICATE KEY UPDATE token = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.token, `shop`.`dblock_once`.token), fingerprint = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.fingerprint, `shop`.`dblock_once`.fingerprint), result = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.result, `shop`.`dblock_once`.result), made_at = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.made_at, `shop`.`dblock_once`.made_at), expires_at = IF(`shop`.`dblock_once`.expires_at <= UTC_TIMESTAMP(6), new.expires_at, `shop`.`dblock_once`.expires_at);
-- then
SELECT /*+ SET_VAR(optimizer_switch = 'subquery_to_derived=off') */ token, fingerprint, result FROM `shop`.`dblock_once`
            WHERE idempotency_key = UNHEX(%(key)s) AND EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef') FOR UPDATE;
-- then
/* finally */ SET innodb_lock_wait_timeout = @dblock_wait

-- finish_once
UPDATE `shop`.`dblock_once` SET result = UNHEX(%(result)s)
WHERE idempotency_key = UNHEX(%(key)s) AND token = %(token)s

-- forget_once
DELETE FROM `shop`.`dblock_once`
WHERE idempotency_key = UNHEX(%(key)s) AND token = %(token)s

-- register, waits 1 s
INSERT INTO `shop`.`dblock_waiter`
    (id, lock_name, strategy, owner, since, expires_at, holds)
VALUES (%(id)s, %(name)s, %(strategy)s, %(owner)s, SYSDATE(6) + INTERVAL %(since)s MICROSECOND, SYSDATE(6) + INTERVAL %(expiry)s MICROSECOND, %(holds)s) AS new ON DUPLICATE KEY UPDATE expires_at = new.expires_at, holds = new.holds

-- unregister, waits 1 s
DELETE FROM `shop`.`dblock_waiter` WHERE id = %(id)s


-- sweep, waits 1 s
START TRANSACTION;
-- then
SELECT JSON_ARRAYAGG(id) INTO @dblock_old FROM (
                SELECT id FROM `shop`.`dblock_waiter` WHERE TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 <= 0 LIMIT 1000
            ) AS some_of_them;
-- then
SELECT JSON_ARRAYAGG(id) INTO @dblock_old FROM (
                SELECT one.id FROM JSON_TABLE(@dblock_old, '$[*]' COLUMNS (id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS old
                STRAIGHT_JOIN `shop`.`dblock_waiter` AS one FORCE INDEX (PRIMARY)
                    ON one.id = old.id
                WHERE TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 <= 0 FOR UPDATE OF one SKIP LOCKED
            ) AS locked;
-- then
DELETE one FROM JSON_TABLE(@dblock_old, '$[*]' COLUMNS (id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS old
                STRAIGHT_JOIN `shop`.`dblock_waiter` AS one FORCE INDEX (PRIMARY)
                    ON one.id = old.id
                WHERE TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 <= 0;
-- then
COMMIT

-- list_waiters, waits 1 s
SELECT lock_name, owner, strategy, since, -TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), since) * 1e-6
FROM `shop`.`dblock_waiter` WHERE TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0 AND lock_name = %(name)s ORDER BY since, id

-- list_waiters, waits 1 s
SELECT lock_name, owner, strategy, since, -TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), since) * 1e-6
FROM `shop`.`dblock_waiter` WHERE TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0 ORDER BY since, id

-- list_blocked, waits 1 s
SELECT w.id, w.lock_name, CASE WHEN l.token IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), l.expires_at) * 1e-6 > 0 THEN l.fence END, w.owner, w.since,
    w.holds
FROM `shop`.`dblock_waiter` AS w
LEFT JOIN `shop`.`dblock_lock` AS l ON l.lock_name = w.lock_name
WHERE w.holds IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), w.expires_at) * 1e-6 > 0

-- read_clock
SELECT UTC_TIMESTAMP(6)


-- begin_run, waits 1 s
START TRANSACTION;
-- then
INSERT IGNORE INTO `shop`.`dblock_run` (lock_name, slot, fence, owner, started_at)
                VALUES (%(name)s, %(slot)s, %(fence)s, %(owner)s, UTC_TIMESTAMP(6));
-- then
SET @dblock_begun = ROW_COUNT();
-- then
UPDATE `shop`.`dblock_run` AS run SET fence = %(fence)s, owner = %(owner)s,
                    started_at = UTC_TIMESTAMP(6), ended_at = NULL, exit_status = NULL
                WHERE lock_name = %(name)s AND slot = %(slot)s AND @dblock_begun = 0 AND (run.fence < %(fence)s AND NOT
            (run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0));
-- then
SELECT fence FROM `shop`.`dblock_run` WHERE lock_name = %(name)s AND slot = %(slot)s;
-- then
COMMIT

-- end_run, waits 1 s
UPDATE `shop`.`dblock_run` SET ended_at = UTC_TIMESTAMP(6),
    exit_status = %(status)s
WHERE lock_name = %(name)s AND slot = %(slot)s
    AND fence = %(fence)s

-- forget_run, waits 1 s
DELETE FROM `shop`.`dblock_run` WHERE lock_name = %(name)s AND slot = %(slot)s
AND fence = %(fence)s

-- list_runs, waits 1 s
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM `shop`.`dblock_lock` AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0) FROM `shop`.`dblock_run` AS run
WHERE lock_name = %(name)s
ORDER BY started_at DESC, fence DESC LIMIT 5

-- list_runs, waits 1 s
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM `shop`.`dblock_lock` AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0) FROM `shop`.`dblock_run` AS run
WHERE lock_name = %(name)s AND slot = %(slot)s
ORDER BY started_at DESC, fence DESC LIMIT 1

-- list_last_runs, waits 1 s
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM `shop`.`dblock_lock` AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0) FROM (
    SELECT one.*, row_number() OVER (
        PARTITION BY lock_name ORDER BY started_at DESC, fence DESC
    ) AS age FROM `shop`.`dblock_run` AS one
) AS run WHERE age = 1 ORDER BY started_at DESC LIMIT 5

-- list_held_runs, waits 1 s
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM `shop`.`dblock_lock` AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0)
FROM `shop`.`dblock_lock` AS l JOIN `shop`.`dblock_run` AS run
    ON run.lock_name = l.lock_name AND run.fence = l.fence
WHERE l.token IS NOT NULL

-- list_row_locks, waits 1 s
SELECT @@performance_schema, SUBSTR(l.lock_data, 3), t.processlist_id,
    t.processlist_user, t.processlist_host, program.attr_value,
    UTC_TIMESTAMP(6) - INTERVAL x.timer_wait DIV 1000000 MICROSECOND, s.digest_text
FROM (SELECT 1) AS always
LEFT JOIN performance_schema.data_locks AS l
    ON l.object_schema = COALESCE(%(schema)s, DATABASE()) AND l.object_name = %(table)s
    AND (@@lower_case_table_names > 0
        OR CAST(l.object_schema AS BINARY) = COALESCE(%(schema)s, DATABASE()) AND CAST(l.object_name AS BINARY) = %(table)s)
    AND l.lock_type = 'RECORD' AND l.lock_status = 'GRANTED'
    AND l.lock_mode NOT LIKE '%%,GAP%%' AND l.lock_data LIKE '0x_%%'
LEFT JOIN performance_schema.threads AS t ON t.thread_id = l.thread_id
LEFT JOIN performance_schema.session_connect_attrs AS program
    ON program.processlist_id = t.processlist_id
    AND program.attr_name = 'program_name'
LEFT JOIN performance_schema.events_transactions_current AS x
    ON x.thread_id = l.thread_id AND x.state = 'ACTIVE'
LEFT JOIN performance_schema.events_statements_current AS s
    ON s.thread_id = l.thread_id AND s.nesting_event_level = 0
ORDER BY x.timer_wait

-- list_row_locks, waits 1 s
SELECT @@performance_schema, SUBSTR(l.lock_data, 3), t.processlist_id,
    t.processlist_user, t.processlist_host, program.attr_value,
    UTC_TIMESTAMP(6) - INTERVAL x.timer_wait DIV 1000000 MICROSECOND, s.digest_text
FROM (SELECT 1) AS always
LEFT JOIN performance_schema.data_locks AS l
    ON l.object_schema = COALESCE(%(schema)s, DATABASE()) AND l.object_name = %(table)s
    AND (@@lower_case_table_names > 0
        OR CAST(l.object_schema AS BINARY) = COALESCE(%(schema)s, DATABASE()) AND CAST(l.object_name AS BINARY) = %(table)s)
    AND l.lock_type = 'RECORD' AND l.lock_status = 'GRANTED'
    AND l.lock_mode NOT LIKE '%%,GAP%%' AND l.lock_data LIKE '0x_%%' AND l.lock_data = CONCAT('0x', HEX(%(name)s))
LEFT JOIN performance_schema.threads AS t ON t.thread_id = l.thread_id
LEFT JOIN performance_schema.session_connect_attrs AS program
    ON program.processlist_id = t.processlist_id
    AND program.attr_name = 'program_name'
LEFT JOIN performance_schema.events_transactions_current AS x
    ON x.thread_id = l.thread_id AND x.state = 'ACTIVE'
LEFT JOIN performance_schema.events_statements_current AS s
    ON s.thread_id = l.thread_id AND s.nesting_event_level = 0
ORDER BY x.timer_wait

-- prune_applied, waits 1 s
SELECT JSON_ARRAYAGG(JSON_ARRAY(HEX(idempotency_key))) INTO @dblock_old FROM (
                SELECT idempotency_key FROM `shop`.`dblock_applied` AS found WHERE applied_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND  LIMIT 1000
            ) AS some_of_them;
-- then
DELETE one FROM JSON_TABLE(@dblock_old, '$[*]' COLUMNS (hex0 VARCHAR(2040) CHARACTER SET ascii PATH '$[0]')) AS old
                STRAIGHT_JOIN `shop`.`dblock_applied` AS one FORCE INDEX (PRIMARY) ON one.idempotency_key = UNHEX(old.hex0) WHERE applied_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND

-- prune_once, waits 1 s
SELECT JSON_ARRAYAGG(JSON_ARRAY(HEX(idempotency_key))) INTO @dblock_old FROM (
                SELECT idempotency_key FROM `shop`.`dblock_once` AS found WHERE expires_at <= UTC_TIMESTAMP(6)  LIMIT 1000
            ) AS some_of_them;
-- then
DELETE one FROM JSON_TABLE(@dblock_old, '$[*]' COLUMNS (hex0 VARCHAR(2040) CHARACTER SET ascii PATH '$[0]')) AS old
                STRAIGHT_JOIN `shop`.`dblock_once` AS one FORCE INDEX (PRIMARY) ON one.idempotency_key = UNHEX(old.hex0) WHERE expires_at <= UTC_TIMESTAMP(6)

-- prune_runs, waits 1 s
SELECT JSON_ARRAYAGG(JSON_ARRAY(HEX(lock_name), HEX(slot))) INTO @dblock_old FROM (
                SELECT lock_name, slot FROM `shop`.`dblock_run` AS found WHERE started_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND EXISTS (SELECT 1 FROM `shop`.`dblock_run` AS later
            WHERE later.lock_name = found.lock_name AND later.started_at > found.started_at) LIMIT 1000
            ) AS some_of_them;
-- then
DELETE one FROM JSON_TABLE(@dblock_old, '$[*]' COLUMNS (hex0 VARCHAR(2040) CHARACTER SET ascii PATH '$[0]', hex1 VARCHAR(2040) CHARACTER SET ascii PATH '$[1]')) AS old
                STRAIGHT_JOIN `shop`.`dblock_run` AS one FORCE INDEX (PRIMARY) ON one.lock_name = UNHEX(old.hex0) AND one.slot = UNHEX(old.hex1) WHERE started_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND

-- look_for_unused, waits 1 s
SELECT MAX(lock_name), MAX(CASE WHEN waiters IS NULL AND (expires_at IS NULL OR expires_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND acquired_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND) THEN fence END) FROM (
    SELECT lock_name, fence, acquired_at, expires_at, waiters FROM `shop`.`dblock_lock`
    WHERE lock_name > %(after)s ORDER BY lock_name LIMIT 1000
) AS page

-- raise_floor, waits 1 s
INSERT INTO `shop`.`dblock_lock` (lock_name, fence) VALUES ('', %(fence)s)
AS asked (floor_name, floor)
ON DUPLICATE KEY UPDATE fence = GREATEST(fence, floor)

-- prune_values, waits 1 s
SELECT JSON_ARRAYAGG(JSON_ARRAY(HEX(lock_name))) INTO @dblock_old FROM (
                SELECT lock_name FROM `shop`.`dblock_value` AS found WHERE written_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND fence <> 0 AND fence > -TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND lock_name <> '' AND NOT EXISTS (SELECT 1 FROM `shop`.`dblock_lock` AS l
            WHERE l.lock_name = found.lock_name) LIMIT 1000
            ) AS some_of_them;
-- then
DELETE one FROM JSON_TABLE(@dblock_old, '$[*]' COLUMNS (hex0 VARCHAR(2040) CHARACTER SET ascii PATH '$[0]')) AS old
                STRAIGHT_JOIN `shop`.`dblock_value` AS one FORCE INDEX (PRIMARY) ON one.lock_name = UNHEX(old.hex0) WHERE written_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND

-- take_place
START TRANSACTION;
-- then
SET @dblock_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
-- then
INSERT INTO `shop`.`dblock_value` (lock_name, fence, value, written_at)
                VALUES (%(name)s, -@dblock_now - %(step)s, %(mark)s, UTC_TIMESTAMP(6))
                ON DUPLICATE KEY UPDATE lock_name = %(name)s;
-- then
UPDATE `shop`.`dblock_value`
                SET fence = LEAST(fence - %(step)s, -@dblock_now - %(step)s), value = %(mark)s,
                    written_at = UTC_TIMESTAMP(6)
                WHERE lock_name = %(name)s AND fence < 0 AND value <> %(mark)s
                    AND %(step)s - fence <= @dblock_now + %(ahead)s;
-- then
SELECT value, -fence, @dblock_now FROM `shop`.`dblock_value` WHERE lock_name = %(name)s;
-- then
COMMIT

-- write_value, waits 1 s
START TRANSACTION;
-- then
INSERT INTO `shop`.`dblock_value` (lock_name, fence, value, written_at)
                SELECT * FROM (SELECT lock_name, %(fence)s, %(value)s,
                UTC_TIMESTAMP(6)
            FROM `shop`.`dblock_lock`
            WHERE lock_name = %(name)s AND token = %(token)s
                AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0) AS new (lock_name, fence, value, written_at)
                ON DUPLICATE KEY UPDATE value = IF(`shop`.`dblock_value`.fence BETWEEN 1 AND new.fence, new.value, `shop`.`dblock_value`.value), written_at = IF(`shop`.`dblock_value`.fence BETWEEN 1 AND new.fence, new.written_at, `shop`.`dblock_value`.written_at), fence = IF(`shop`.`dblock_value`.fence BETWEEN 1 AND new.fence, new.fence, `shop`.`dblock_value`.fence);
-- then
SET @dblock_proven = ROW_COUNT();
-- then
SELECT fence FROM `shop`.`dblock_value`
                WHERE lock_name = IF(@dblock_proven > 0, %(name)s, NULL);
-- then
COMMIT

-- read_leader, waits 1 s
SELECT l.token IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0 AND NOT SUBSTR(l.token, 1, 6) = 'shared', l.owner, l.fence, l.acquired_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6,
    l.token, v.value, v.fence
FROM `shop`.`dblock_lock` AS l LEFT JOIN `shop`.`dblock_value` AS v
    ON v.lock_name = l.lock_name
WHERE l.lock_name = %(name)s

-- retire, waits 1 s
START TRANSACTION;
-- then
SELECT JSON_ARRAYAGG(HEX(lock_name)) INTO @dblock_idle FROM `shop`.`dblock_lock`
                WHERE lock_name > %(after)s AND lock_name <= %(last)s AND fence <= %(fence)s AND waiters IS NULL AND (expires_at IS NULL OR expires_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND acquired_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND);
-- then
SELECT JSON_ARRAYAGG(hex) INTO @dblock_idle FROM (SELECT HEX(l.lock_name) AS hex FROM JSON_TABLE(@dblock_idle, '$[*]' COLUMNS (hex VARCHAR(2040) CHARACTER SET ascii PATH '$')) AS idle
                STRAIGHT_JOIN `shop`.`dblock_lock` AS l FORCE INDEX (PRIMARY)
                    ON l.lock_name = UNHEX(idle.hex)
                WHERE lock_name > %(after)s AND lock_name <= %(last)s AND fence <= %(fence)s AND waiters IS NULL AND (expires_at IS NULL OR expires_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND acquired_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND) AND (
                    SELECT COUNT(*) FROM `shop`.`dblock_guard` AS g WHERE g.lock_name = l.lock_name
                ) = (
                    SELECT COUNT(*) FROM `shop`.`dblock_guard` AS g WHERE g.lock_name = l.lock_name
                    FOR UPDATE SKIP LOCKED
                )
                FOR UPDATE OF l SKIP LOCKED) AS locked;
-- then
DELETE one FROM JSON_TABLE(@dblock_idle, '$[*]' COLUMNS (hex VARCHAR(2040) CHARACTER SET ascii PATH '$')) AS idle
                STRAIGHT_JOIN `shop`.`dblock_lock` AS one FORCE INDEX (PRIMARY)
                    ON one.lock_name = UNHEX(idle.hex);
-- then
DELETE one FROM JSON_TABLE(@dblock_idle, '$[*]' COLUMNS (hex VARCHAR(2040) CHARACTER SET ascii PATH '$')) AS idle
                STRAIGHT_JOIN `shop`.`dblock_guard` AS one FORCE INDEX (PRIMARY)
                    ON one.lock_name = UNHEX(idle.hex);
-- then
SELECT COALESCE(JSON_LENGTH(@dblock_idle), 0);
-- then
COMMIT

-- vote, waits 1 s
START TRANSACTION;
-- then
INSERT IGNORE INTO `shop`.`dblock_guard` (lock_name) SELECT %(name)s FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE lock_name = %(name)s);
-- then
INSERT IGNORE INTO `shop`.`dblock_lock` (lock_name, fence) SELECT %(name)s, 0 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s);
-- then
SELECT ROW_COUNT(), COALESCE((SELECT fence FROM `shop`.`dblock_lock` WHERE lock_name = ''), 0) INTO @dblock_made, @dblock_floor;
-- then
UPDATE `shop`.`dblock_lock` SET fence = @dblock_floor
                WHERE lock_name = IF(@dblock_made = 1, %(name)s, NULL);
-- then
UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence + 1),
                token = %(token)s, owner = %(owner)s, waiters = NULL,
                acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
            WHERE lock_name = (SELECT /*+ NO_MERGE(mine) */ lock_name FROM (
                SELECT l.lock_name FROM `shop`.`dblock_lock` AS l
                WHERE l.lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL (COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) + (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
            AND COALESCE(IS_USED_LOCK(SHA2(CONCAT_WS('/', %(user_lock)s, DATABASE()), 256)) <> CONNECTION_ID(), FALSE))) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND EXISTS (SELECT 1 FROM `shop`.`dblock_value` AS v WHERE v.lock_name = ''
                AND v.written_at <= UTC_TIMESTAMP(6) AND v.value = CONCAT('"', %(members)s, ' "')
                AND v.fence >= %(longest)s) AND (SELECT 1 FROM `shop`.`dblock_guard` AS g WHERE g.lock_name = l.lock_name FOR UPDATE SKIP LOCKED)
                FOR UPDATE OF l SKIP LOCKED
            ) AS mine);
-- then
SELECT NOT token <=> %(token)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL (COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) + (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
            AND COALESCE(IS_USED_LOCK(SHA2(CONCAT_WS('/', %(user_lock)s, DATABASE()), 256)) <> CONNECTION_ID(), FALSE))) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND EXISTS (SELECT 1 FROM `shop`.`dblock_value` AS v WHERE v.lock_name = ''
                AND v.written_at <= UTC_TIMESTAMP(6) AND v.value = CONCAT('"', %(members)s, ' "')
                AND v.fence >= %(longest)s), fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, token
                FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s;
-- then
COMMIT

-- stamp, waits 1 s
UPDATE `shop`.`dblock_lock` SET fence = %(fence)s
WHERE lock_name = %(name)s AND token = %(token)s AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0
    AND fence <= %(fence)s AND EXISTS (SELECT 1 FROM `shop`.`dblock_value` AS v WHERE v.lock_name = ''
    AND v.written_at <= UTC_TIMESTAMP(6) AND v.value = CONCAT('"', %(members)s, ' "')
    AND v.fence >= %(longest)s)

-- read_member, waits 1 s
SELECT v.value, v.fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), v.written_at) * 1e-6, '', (SELECT MAX(fence) FROM `shop`.`dblock_lock`)
FROM (SELECT 1 AS one) AS always
LEFT JOIN `shop`.`dblock_value` AS v ON v.lock_name = ''

-- write_member, waits 1 s
INSERT INTO `shop`.`dblock_value` (lock_name, fence, value, written_at)
VALUES ('', %(longest)s, %(after)s, SYSDATE(6) + INTERVAL %(pause)s MICROSECOND)
ON DUPLICATE KEY UPDATE lock_name = lock_name

-- write_member, waits 1 s
UPDATE `shop`.`dblock_value` SET value = %(after)s, written_at = SYSDATE(6) + INTERVAL %(pause)s MICROSECOND,
    fence = CASE WHEN fence > %(longest)s THEN fence ELSE %(longest)s END
WHERE lock_name = '' AND value = %(before)s

-- raise_fences, waits 1 s
UPDATE `shop`.`dblock_lock` SET fence = %(fence)s WHERE fence < %(fence)s


-- end_session
SET @dblock_there = EXISTS (SELECT 1 FROM performance_schema.processlist WHERE id = %(number)s AND host = %(mark)s);
-- then
SET @dblock_end = IF(@dblock_there, 'KILL CONNECTION %(number)s', 'DO 0');
-- then
PREPARE dblock_end FROM @dblock_end;
-- then
EXECUTE dblock_end;
-- then
DEALLOCATE PREPARE dblock_end;
-- then
SELECT 1 FROM DUAL WHERE @dblock_there

-- see_hidden
SHOW CREATE TABLE dblock_lock

