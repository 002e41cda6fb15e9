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
    UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence + 1),
    token = %(token)s, owner = %(owner)s, waiters = NULL,
    acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL (COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) + (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
AND COALESCE(IS_USED_LOCK(SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE()))) <> CONNECTION_ID(), FALSE))) * 400000 MICROSECOND <= UTC_TIMESTAMP(6))
    AND (SELECT 1 FROM `shop`.`dblock_guard` WHERE lock_name = %(name)s FOR UPDATE);
    COMMIT;
    SELECT fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, token FROM `shop`.`dblock_lock`
        WHERE lock_name = %(name)s;
END

-- grant, waits 0 s
UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence + 1),
    token = %(token)s, owner = %(owner)s, waiters = NULL,
    acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL (COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) + (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
AND COALESCE(IS_USED_LOCK(SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE()))) <> CONNECTION_ID(), FALSE))) * 400000 MICROSECOND <= UTC_TIMESTAMP(6))
    AND (SELECT 1 FROM `shop`.`dblock_guard` WHERE lock_name = %(name)s FOR UPDATE)

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
        UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence + 1),
    token = %(token)s, owner = %(owner)s, waiters = NULL,
    acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE lock_name = slot AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6))
    AND (SELECT 1 FROM `shop`.`dblock_guard` WHERE lock_name = slot FOR UPDATE);
        IF taken AND ROW_COUNT() > 0 THEN LEAVE every; END IF;
    END LOOP;
    CLOSE slots;
    SELECT fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, lock_name FROM `shop`.`dblock_lock`
        WHERE lock_name = slot AND token = %(token)s AND NOT ended;
END

-- grant_slot, waits 0 s
UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence + 1),
    token = %(token)s, owner = %(owner)s, waiters = NULL,
    acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE lock_name = %(slot)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (SELECT value FROM `shop`.`dblock_value` WHERE lock_name = %(name)s AND fence = 0)
    = %(value)s
AND NOT EXISTS (SELECT 1 FROM (SELECT 1 FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s AND (NOT (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND (token IS NULL OR token <> %(turnstile)s) OR (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
AND COALESCE(IS_USED_LOCK(SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE()))) <> CONNECTION_ID(), FALSE))) LIMIT 1) AS turnstile)
    AND (SELECT 1 FROM `shop`.`dblock_guard` WHERE lock_name = %(slot)s FOR UPDATE)

-- look_at_slots, waits 0 s
SELECT (SELECT CASE WHEN fence = 0 THEN value WHEN fence < 0 THEN '-1' ELSE '0' END FROM `shop`.`dblock_value` WHERE lock_name = %(name)s), lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers, NULL, (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) * 400000 MICROSECOND <= UTC_TIMESTAMP(6))
FROM (SELECT 1 AS one) AS always LEFT JOIN `shop`.`dblock_lock`
    ON lock_name IN (%(name0)s, %(name1)s, %(name2)s) AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE `shop`.`dblock_guard`.lock_name = `shop`.`dblock_lock`.lock_name))

-- set_limit, waits 0 s
INSERT INTO `shop`.`dblock_value` (lock_name, fence, value, written_at)
VALUES (%(name)s, 0, %(value)s, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE lock_name = lock_name

-- set_limit, waits 0 s
INSERT INTO `shop`.`dblock_value` (lock_name, fence, value, written_at)
VALUES (%(name)s, 0, %(value)s, UTC_TIMESTAMP(6))
ON DUPLICATE KEY
UPDATE value = IF(fence = 0, VALUES(value), value),
    written_at = IF(fence = 0, VALUES(written_at), written_at)

-- join, waits 0 s
BEGIN NOT ATOMIC
            DECLARE free, noted INT DEFAULT 0;
            SELECT (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)), readers IS NOT NULL INTO free, noted FROM `shop`.`dblock_lock`
                WHERE lock_name = %(name)s;
            IF free THEN
                UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence + 1),
            token = %(token)s, owner = %(owner)s, waiters = IF(LOCATE(%(ticket)s, waiters), NULLIF(
SUBSTRING(waiters, LOCATE(%(ticket)s, waiters) + 25), ''), NULL),
            acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
        WHERE lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6))
            AND (SELECT 1 FROM `shop`.`dblock_guard` WHERE lock_name = %(name)s FOR UPDATE);
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

-- join_readers, waits 1 s
SET STATEMENT innodb_lock_wait_timeout = 1 FOR UPDATE `shop`.`dblock_lock` SET
    expires_at = GREATEST(expires_at, SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND), waiters = NULLIF(TRIM(BOTH ',' FROM REPLACE(
    CONCAT(',', waiters, ','), CONCAT(',', %(ticket)s, ','), ',')), ''),
    readers = CONCAT(CASE WHEN COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) THEN readers ELSE CONCAT(token, ' ', token) END, ' ', %(token)s)
WHERE lock_name = %(name)s AND token = %(group)s AND expires_at > SYSDATE(6)
    AND (%(past)s OR IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) = 0) AND NOT CASE WHEN COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) THEN REPLACE(readers, CONCAT(' ', %(token)s), '') <> readers ELSE token = %(token)s END

-- leave_readers, waits 1 s
SET STATEMENT innodb_lock_wait_timeout = 1 FOR UPDATE `shop`.`dblock_lock` SET
    expires_at = IF(NOT COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) OR REPLACE(readers, CONCAT(' ', %(token)s), '') = token, SYSDATE(6), expires_at),
    token = IF(NOT COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) OR REPLACE(readers, CONCAT(' ', %(token)s), '') = token, NULL, token),
    readers = REPLACE(readers, CONCAT(' ', %(token)s), '')
WHERE lock_name = %(name)s AND token = %(group)s AND CASE WHEN COALESCE(SUBSTR(readers, 1, 32) = token, FALSE) THEN REPLACE(readers, CONCAT(' ', %(token)s), '') <> readers ELSE token = %(token)s END

-- wait_in_server, waits 0.25 s
BEGIN NOT ATOMIC
    DECLARE held INT DEFAULT NOT IS_FREE_LOCK(SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE())));
    DECLARE shared INT DEFAULT 0;
    SELECT readers IS NOT NULL INTO shared FROM `shop`.`dblock_lock`
        WHERE lock_name = %(name)s;
    IF shared OR NOT GET_LOCK(SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE())), %(patience)s) <=> 1 THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'the user lock';
    END IF;
    SELECT held;
END

-- release_and_unlock, waits 0 s
BEGIN NOT ATOMIC
    DECLARE released INT DEFAULT 0;
    UPDATE `shop`.`dblock_lock` SET token = NULL, expires_at = SYSDATE(6)
WHERE lock_name = %(name)s AND token = %(token)s;
    SET released = ROW_COUNT();
    DO RELEASE_LOCK(SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE())));
    SELECT 1 FROM DUAL WHERE released = 1;
END

-- unlock_all
DO RELEASE_ALL_LOCKS()


-- leave, waits 1 s
SET STATEMENT innodb_lock_wait_timeout = 1 FOR
UPDATE `shop`.`dblock_lock` SET waiters = NULLIF(TRIM(BOTH ',' FROM REPLACE(
    CONCAT(',', waiters, ','), CONCAT(',', %(ticket)s, ','), ',')), '')
WHERE lock_name = %(name)s AND (LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0)

-- renew, waits 0 s
BEGIN NOT ATOMIC
    DECLARE holds LONGTEXT CHARACTER SET ascii DEFAULT %(asked)s;
    DECLARE start DATETIME(6) DEFAULT SYSDATE(6);
    DECLARE moved INT;
    UPDATE JSON_TABLE(holds, '$[*]' COLUMNS (
        hex VARCHAR(2040) CHARACTER SET ascii PATH '$[0]',
        token CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
        ttl BIGINT PATH '$[2]'
    )) AS asked STRAIGHT_JOIN `shop`.`dblock_lock` AS l FORCE INDEX (PRIMARY)
        ON l.lock_name = UNHEX(asked.hex) AND l.token = asked.token
    SET expires_at = IF(SUBSTR(l.token, 1, 6) = 'shared', GREATEST(expires_at, SYSDATE(6) + INTERVAL asked.ttl MICROSECOND), SYSDATE(6) + INTERVAL asked.ttl MICROSECOND)
    WHERE expires_at > SYSDATE(6);
    SELECT COUNT(*) INTO moved FROM JSON_TABLE(holds, '$[*]' COLUMNS (
        hex VARCHAR(2040) CHARACTER SET ascii PATH '$[0]',
        token CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
        ttl BIGINT PATH '$[2]'
    )) AS asked STRAIGHT_JOIN `shop`.`dblock_lock` AS l FORCE INDEX (PRIMARY)
        ON l.lock_name = UNHEX(asked.hex) AND l.token = asked.token WHERE expires_at >= start + INTERVAL asked.ttl MICROSECOND;
    IF moved = JSON_LENGTH(holds) AND moved > 1
    THEN SELECT 'all', NULL;
    ELSE SELECT l.token, l.fence FROM JSON_TABLE(holds, '$[*]' COLUMNS (
        hex VARCHAR(2040) CHARACTER SET ascii PATH '$[0]',
        token CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
        ttl BIGINT PATH '$[2]'
    )) AS asked STRAIGHT_JOIN `shop`.`dblock_lock` AS l FORCE INDEX (PRIMARY)
        ON l.lock_name = UNHEX(asked.hex) AND l.token = asked.token WHERE expires_at >= start + INTERVAL asked.ttl MICROSECOND;
    END IF;
END

-- attach, waits 0 s
UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence),
    token = %(new_token)s, owner = %(owner)s, expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE lock_name = %(name)s AND token = %(token)s AND expires_at > SYSDATE(6)
    AND (SELECT 1 FROM `shop`.`dblock_guard` WHERE lock_name = %(name)s FOR UPDATE)

-- release, waits 0 s
UPDATE `shop`.`dblock_lock` SET token = NULL, expires_at = SYSDATE(6)
WHERE lock_name = %(name)s AND token = %(token)s

-- release, waits 0 s
UPDATE `shop`.`dblock_lock` SET token = NULL, expires_at = SYSDATE(6)
WHERE lock_name = %(name)s AND token = %(token)s

-- release, waits 0 s
UPDATE `shop`.`dblock_lock` SET token = NULL, expires_at = SYSDATE(6)
WHERE lock_name = %(name)s AND token = %(token)s

-- look_around, waits 0 s
SELECT DATABASE(), @@hostname, @@port, s.* FROM `shop`.`dblock_schema` AS s


-- look_around, waits 0 s
/*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ SELECT DATABASE(), @@hostname, @@port, s.* FROM `shop`.`dblock_schema` AS s LOCK IN SHARE MODE


-- look, waits 0 s
SELECT lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE `shop`.`dblock_guard`.lock_name = `shop`.`dblock_lock`.lock_name))


-- look, waits 0 s
SELECT lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers FROM `shop`.`dblock_lock` WHERE lock_name IN (%(name0)s, %(name1)s) AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE `shop`.`dblock_guard`.lock_name = `shop`.`dblock_lock`.lock_name))


-- look_queued, waits 0 s
SELECT lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers, CASE WHEN (LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0) THEN IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) END, (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL IF((LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0), (LOCATE(%(ticket)s, waiters) - 1) DIV 25, COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0)) * 400000 MICROSECOND <= UTC_TIMESTAMP(6))
FROM `shop`.`dblock_lock` WHERE lock_name = %(name)s AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM `shop`.`dblock_guard` WHERE `shop`.`dblock_guard`.lock_name = `shop`.`dblock_lock`.lock_name))

-- list_held, waits 0 s
SELECT lock_name, fence, token, owner, acquired_at, expires_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, readers FROM `shop`.`dblock_lock`
WHERE token IS NOT NULL OR lock_name IN (SELECT lock_name FROM `shop`.`dblock_waiter` WHERE TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0) ORDER BY lock_name

-- create, waits 0 s
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
    COMMIT;
END

-- lock_row, waits 2.5 s
SET STATEMENT /*M!110402 innodb_snapshot_isolation = OFF, */ max_statement_time = 2.500 FOR
SELECT STRAIGHT_JOIN l.fence FROM `shop`.`dblock_guard` AS g
JOIN `shop`.`dblock_lock` AS l ON l.lock_name = g.lock_name
WHERE g.lock_name = (SELECT lock_name FROM `shop`.`dblock_lock` WHERE lock_name = UNHEX(%(name)s) AND (token IS NULL OR expires_at <= UTC_TIMESTAMP(6)))
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6))
FOR UPDATE WAIT 4

-- lock_row, waits 2.5 s
SET STATEMENT /*M!110402 innodb_snapshot_isolation = OFF, */ max_statement_time = 2.500 FOR
SELECT STRAIGHT_JOIN l.fence FROM `shop`.`dblock_guard` AS g
JOIN `shop`.`dblock_lock` AS l ON l.lock_name = g.lock_name
WHERE g.lock_name = UNHEX(%(name)s)
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6)) AND EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' LOCK IN SHARE MODE NOWAIT)
FOR UPDATE WAIT 4

-- lock_row, waits 0 s
/*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */
SELECT STRAIGHT_JOIN l.fence FROM `shop`.`dblock_guard` AS g
JOIN `shop`.`dblock_lock` AS l ON l.lock_name = g.lock_name
WHERE g.lock_name = (SELECT lock_name FROM `shop`.`dblock_lock` WHERE lock_name = UNHEX(%(name)s) AND (token IS NULL OR expires_at <= UTC_TIMESTAMP(6)))
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6))
FOR UPDATE NOWAIT

-- lock_row, waits 0 s
/*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */
SELECT STRAIGHT_JOIN l.fence FROM `shop`.`dblock_guard` AS g
JOIN `shop`.`dblock_lock` AS l ON l.lock_name = g.lock_name
WHERE g.lock_name = UNHEX(%(name)s)
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6)) AND EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' LOCK IN SHARE MODE NOWAIT)
FOR UPDATE NOWAIT

-- lock_row, waits 5 s
SET STATEMENT /*M!110402 innodb_snapshot_isolation = OFF, */ max_statement_time = 5.000 FOR
SELECT STRAIGHT_JOIN l.fence FROM `shop`.`dblock_guard` AS g
JOIN `shop`.`dblock_lock` AS l ON l.lock_name = g.lock_name
WHERE g.lock_name = (SELECT lock_name FROM `shop`.`dblock_lock` WHERE lock_name = UNHEX(%(name)s) AND (token IS NULL OR expires_at <= UTC_TIMESTAMP(6)))
    AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6))
FOR UPDATE WAIT 6

-- guard, waits 0 s
/*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */
SELECT 1 FROM `shop`.`dblock_guard` WHERE lock_name = UNHEX(%(name)s) AND EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef' LOCK IN SHARE MODE NOWAIT)
LOCK IN SHARE MODE NOWAIT

-- apply
/*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */
INSERT IGNORE INTO `shop`.`dblock_applied` (idempotency_key, applied_at)
SELECT UNHEX(%(name)s), UTC_TIMESTAMP(6) FROM DUAL WHERE EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef')

-- unapply
DELETE FROM `shop`.`dblock_applied` WHERE idempotency_key = UNHEX(%(name)s)


-- gate
/*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */
INSERT INTO fences (name, fence) VALUES (UNHEX(%(name)s), %(fence)s)
ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence))
RETURNING fence

-- claim_once, waits 2.5 s
SET STATEMENT /*M!110402 innodb_snapshot_isolation = OFF, */ innodb_lock_wait_timeout = 4, max_statement_time = 2.500 FOR
INSERT INTO `shop`.`dblock_once`
(idempotency_key, token, fingerprint, result, made_at, expires_at)
SELECT UNHEX(%(key)s), %(token)s, %(fingerprint)s, NULL,
    UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL %(keep)s SECOND FROM DUAL WHERE EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef')
ON DUPLICATE KEY UPDATE token = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(token), token), fingerprint = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(fingerprint), fingerprint), result = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(result), result), made_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(made_at), made_at), expires_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(expires_at), expires_at)
RETURNING token, fingerprint, result

-- claim_once, waits 0 s
SET STATEMENT /*M!110402 innodb_snapshot_isolation = OFF, */ innodb_lock_wait_timeout = 0 FOR
INSERT INTO `shop`.`dblock_once`
(idempotency_key, token, fingerprint, result, made_at, expires_at)
SELECT UNHEX(%(key)s), %(token)s, %(fingerprint)s, NULL,
    UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL %(keep)s SECOND FROM DUAL WHERE EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef')
ON DUPLICATE KEY UPDATE token = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(token), token), fingerprint = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(fingerprint), fingerprint), result = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(result), result), made_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(made_at), made_at), expires_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(expires_at), expires_at)
RETURNING token, fingerprint, result

-- claim_once, waits 5 s
SET STATEMENT /*M!110402 innodb_snapshot_isolation = OFF, */ innodb_lock_wait_timeout = 6, max_statement_time = 5.000 FOR
INSERT INTO `shop`.`dblock_once`
(idempotency_key, token, fingerprint, result, made_at, expires_at)
SELECT UNHEX(%(key)s), %(token)s, %(fingerprint)s, NULL,
    UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL %(keep)s SECOND FROM DUAL WHERE EXISTS (SELECT 1 FROM `shop`.`dblock_schema` AS s WHERE s.identity = '0123456789abcdef0123456789abcdef')
ON DUPLICATE KEY UPDATE token = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(token), token), fingerprint = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(fingerprint), fingerprint), result = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(result), result), made_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(made_at), made_at), expires_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUES(expires_at), expires_at)
RETURNING token, fingerprint, result

-- finish_once
UPDATE `shop`.`dblock_once` SET result = UNHEX(%(result)s)
WHERE idempotency_key = UNHEX(%(key)s) AND token = %(token)s

-- forget_once
DELETE FROM `shop`.`dblock_once`
WHERE idempotency_key = UNHEX(%(key)s) AND token = %(token)s

-- register, waits 0 s
INSERT INTO `shop`.`dblock_waiter`
    (id, lock_name, strategy, owner, since, expires_at, holds)
VALUES (%(id)s, %(name)s, %(strategy)s, %(owner)s, SYSDATE(6) + INTERVAL %(since)s MICROSECOND, SYSDATE(6) + INTERVAL %(expiry)s MICROSECOND, %(holds)s) ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at), holds = VALUES(holds)

-- unregister, waits 0 s
DELETE FROM `shop`.`dblock_waiter` WHERE id = %(id)s


-- sweep, waits 0 s
DELETE w FROM (SELECT id FROM `shop`.`dblock_waiter` WHERE TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 <= 0 LIMIT 1000) AS expired STRAIGHT_JOIN `shop`.`dblock_waiter` AS w
ON w.id = expired.id

-- list_waiters, waits 0 s
SELECT lock_name, owner, strategy, since, -TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), since) * 1e-6
FROM `shop`.`dblock_waiter` WHERE TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0 AND lock_name = %(name)s ORDER BY since, id

-- list_waiters, waits 0 s
SELECT lock_name, owner, strategy, since, -TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), since) * 1e-6
FROM `shop`.`dblock_waiter` WHERE TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0 ORDER BY since, id

-- list_blocked, waits 0 s
SELECT w.id, w.lock_name, CASE WHEN l.token IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), l.expires_at) * 1e-6 > 0 THEN l.fence END, w.owner, w.since,
    w.holds
FROM `shop`.`dblock_waiter` AS w
LEFT JOIN `shop`.`dblock_lock` AS l ON l.lock_name = w.lock_name
WHERE w.holds IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), w.expires_at) * 1e-6 > 0

-- read_clock
SELECT UTC_TIMESTAMP(6)


-- begin_run, waits 0 s
BEGIN NOT ATOMIC
    INSERT IGNORE INTO `shop`.`dblock_run` (lock_name, slot, fence, owner, started_at)
        VALUES (%(name)s, %(slot)s, %(fence)s, %(owner)s, UTC_TIMESTAMP(6));
    IF ROW_COUNT() = 0 THEN
        UPDATE `shop`.`dblock_run` AS run SET fence = %(fence)s, owner = %(owner)s,
            started_at = UTC_TIMESTAMP(6), ended_at = NULL, exit_status = NULL
            WHERE lock_name = %(name)s AND slot = %(slot)s AND (run.fence < %(fence)s AND NOT
(run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0));
    END IF;
    SELECT fence FROM `shop`.`dblock_run` WHERE lock_name = %(name)s AND slot = %(slot)s;
END

-- end_run, waits 0 s
UPDATE `shop`.`dblock_run` SET ended_at = UTC_TIMESTAMP(6),
    exit_status = %(status)s
WHERE lock_name = %(name)s AND slot = %(slot)s
    AND fence = %(fence)s

-- forget_run, waits 0 s
DELETE FROM `shop`.`dblock_run` WHERE lock_name = %(name)s AND slot = %(slot)s
AND fence = %(fence)s

-- list_runs, waits 0 s
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM `shop`.`dblock_lock` AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0) FROM `shop`.`dblock_run` AS run
WHERE lock_name = %(name)s
ORDER BY started_at DESC, fence DESC LIMIT 5

-- list_runs, waits 0 s
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM `shop`.`dblock_lock` AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0) FROM `shop`.`dblock_run` AS run
WHERE lock_name = %(name)s AND slot = %(slot)s
ORDER BY started_at DESC, fence DESC LIMIT 1

-- list_last_runs, waits 0 s
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM `shop`.`dblock_lock` AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0) FROM (
    SELECT one.*, row_number() OVER (
        PARTITION BY lock_name ORDER BY started_at DESC, fence DESC
    ) AS age FROM `shop`.`dblock_run` AS one
) AS run WHERE age = 1 ORDER BY started_at DESC LIMIT 5

-- list_held_runs, waits 0 s
SELECT run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
run.exit_status, EXISTS (SELECT 1 FROM `shop`.`dblock_lock` AS held
    WHERE held.lock_name = run.lock_name AND held.fence = run.fence
        AND token IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0)
FROM `shop`.`dblock_lock` AS l JOIN `shop`.`dblock_run` AS run
    ON run.lock_name = l.lock_name AND run.fence = l.fence
WHERE l.token IS NOT NULL

-- prune_applied, waits 0 s
DELETE FROM `shop`.`dblock_applied` WHERE applied_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND (idempotency_key) IN (SELECT idempotency_key FROM (
    SELECT idempotency_key FROM `shop`.`dblock_applied` AS found WHERE applied_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND  LIMIT 1000
) AS some_of_them)

-- prune_once, waits 0 s
DELETE FROM `shop`.`dblock_once` WHERE expires_at <= UTC_TIMESTAMP(6) AND (idempotency_key) IN (SELECT idempotency_key FROM (
    SELECT idempotency_key FROM `shop`.`dblock_once` AS found WHERE expires_at <= UTC_TIMESTAMP(6)  LIMIT 1000
) AS some_of_them)

-- prune_runs, waits 0 s
DELETE FROM `shop`.`dblock_run` WHERE started_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND (lock_name, slot) IN (SELECT lock_name, slot FROM (
    SELECT lock_name, slot FROM `shop`.`dblock_run` AS found WHERE started_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND EXISTS (SELECT 1 FROM `shop`.`dblock_run` AS later
WHERE later.lock_name = found.lock_name AND later.started_at > found.started_at) LIMIT 1000
) AS some_of_them)

-- look_for_unused, waits 0 s
SELECT MAX(lock_name), MAX(CASE WHEN waiters IS NULL AND (expires_at IS NULL OR expires_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND acquired_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND) THEN fence END) FROM (
    SELECT lock_name, fence, acquired_at, expires_at, waiters FROM `shop`.`dblock_lock`
    WHERE lock_name > %(after)s ORDER BY lock_name LIMIT 1000
) AS page

-- raise_floor, waits 0 s
INSERT INTO `shop`.`dblock_lock` (lock_name, fence) VALUES ('', %(fence)s)
ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence))

-- prune_values, waits 0 s
DELETE FROM `shop`.`dblock_value` WHERE written_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND (lock_name) IN (SELECT lock_name FROM (
    SELECT lock_name FROM `shop`.`dblock_value` AS found WHERE written_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND fence <> 0 AND fence > -TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND lock_name <> '' AND NOT EXISTS (SELECT 1 FROM `shop`.`dblock_lock` AS l
WHERE l.lock_name = found.lock_name) LIMIT 1000
) AS some_of_them)

-- take_place
INSERT INTO `shop`.`dblock_value` (lock_name, fence, value, written_at)
VALUES (%(name)s, -TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - %(step)s, %(mark)s, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE
    fence = IF(@dblock_fits := fence < 0 AND value <> VALUES(value)
    AND %(step)s - fence <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + %(ahead)s, LEAST(fence - %(step)s, VALUES(fence)), fence),
    value = IF(@dblock_fits, VALUES(value), value),
    written_at = IF(@dblock_fits, VALUES(written_at), written_at)
RETURNING value, -fence, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- write_value, waits 0 s
INSERT INTO `shop`.`dblock_value` (lock_name, fence, value, written_at)
SELECT lock_name, %(fence)s, %(value)s,
    UTC_TIMESTAMP(6)
FROM `shop`.`dblock_lock`
WHERE lock_name = %(name)s AND token = %(token)s
    AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0
ON DUPLICATE KEY UPDATE value = IF(`shop`.`dblock_value`.fence BETWEEN 1 AND VALUES(fence), VALUES(value), `shop`.`dblock_value`.value), written_at = IF(`shop`.`dblock_value`.fence BETWEEN 1 AND VALUES(fence), VALUES(written_at), `shop`.`dblock_value`.written_at), fence = IF(`shop`.`dblock_value`.fence BETWEEN 1 AND VALUES(fence), VALUES(fence), `shop`.`dblock_value`.fence)
RETURNING fence

-- read_leader, waits 0 s
SELECT l.token IS NOT NULL AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0 AND NOT SUBSTR(l.token, 1, 6) = 'shared', l.owner, l.fence, l.acquired_at, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6,
    l.token, v.value, v.fence
FROM `shop`.`dblock_lock` AS l LEFT JOIN `shop`.`dblock_value` AS v
    ON v.lock_name = l.lock_name
WHERE l.lock_name = %(name)s

-- retire, waits 0 s
BEGIN NOT ATOMIC
    DECLARE one VARBINARY(1020);
    DECLARE found, retired INT DEFAULT 0;
    DECLARE ended, busy BOOL DEFAULT FALSE;
    DECLARE idle CURSOR FOR SELECT lock_name FROM `shop`.`dblock_lock`
        WHERE lock_name > %(after)s AND lock_name <= %(last)s AND fence <= %(fence)s AND waiters IS NULL AND (expires_at IS NULL OR expires_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND acquired_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND);
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;
    DECLARE CONTINUE HANDLER FOR 1205 BEGIN
        COMMIT;
        START TRANSACTION;
        SET busy = TRUE;
    END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    OPEN idle;
    every: LOOP
        FETCH idle INTO one;
        IF ended THEN LEAVE every; END IF;
        SET busy = FALSE;
        SELECT COUNT(*) INTO found FROM `shop`.`dblock_guard` WHERE lock_name = one
            FOR UPDATE;
        IF NOT busy THEN
            DELETE FROM `shop`.`dblock_lock` WHERE lock_name = one AND lock_name > %(after)s AND lock_name <= %(last)s AND fence <= %(fence)s AND waiters IS NULL AND (expires_at IS NULL OR expires_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND AND acquired_at < UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND);
            IF NOT busy AND ROW_COUNT() = 1 THEN
                SET retired = retired + 1;
                DELETE FROM `shop`.`dblock_guard` WHERE lock_name = one;
            END IF;
        END IF;
    END LOOP;
    CLOSE idle;
    COMMIT;
    SELECT retired;
END

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
    UPDATE `shop`.`dblock_lock` SET fence = LAST_INSERT_ID(fence + 1),
    token = %(token)s, owner = %(owner)s, waiters = NULL,
    acquired_at = SYSDATE(6), expires_at = SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND
WHERE lock_name = %(name)s AND (expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) OR expires_at + INTERVAL (COALESCE((CHAR_LENGTH(waiters) + 1) DIV 25, 0) + (expires_at <= UTC_TIMESTAMP(6) AND expires_at + INTERVAL 400000 MICROSECOND > UTC_TIMESTAMP(6)
AND COALESCE(IS_USED_LOCK(SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE()))) <> CONNECTION_ID(), FALSE))) * 400000 MICROSECOND <= UTC_TIMESTAMP(6)) AND EXISTS (SELECT 1 FROM `shop`.`dblock_value` AS v WHERE v.lock_name = ''
    AND v.written_at <= UTC_TIMESTAMP(6) AND v.value = CONCAT('"', %(members)s, ' "')
    AND v.fence >= %(longest)s)
    AND (SELECT 1 FROM `shop`.`dblock_guard` WHERE lock_name = %(name)s FOR UPDATE);
    COMMIT;
    SELECT fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6, token FROM `shop`.`dblock_lock`
        WHERE lock_name = %(name)s;
END

-- stamp, waits 0 s
UPDATE `shop`.`dblock_lock` SET fence = %(fence)s
WHERE lock_name = %(name)s AND token = %(token)s AND TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6 > 0
    AND fence <= %(fence)s AND EXISTS (SELECT 1 FROM `shop`.`dblock_value` AS v WHERE v.lock_name = ''
    AND v.written_at <= UTC_TIMESTAMP(6) AND v.value = CONCAT('"', %(members)s, ' "')
    AND v.fence >= %(longest)s)

-- read_member, waits 0 s
SELECT v.value, v.fence, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), v.written_at) * 1e-6, '', (SELECT MAX(fence) FROM `shop`.`dblock_lock`)
FROM (SELECT 1 AS one) AS always
LEFT JOIN `shop`.`dblock_value` AS v ON v.lock_name = ''

-- write_member, waits 0 s
INSERT INTO `shop`.`dblock_value` (lock_name, fence, value, written_at)
VALUES ('', %(longest)s, %(after)s, SYSDATE(6) + INTERVAL %(pause)s MICROSECOND)
ON DUPLICATE KEY UPDATE lock_name = lock_name

-- write_member, waits 0 s
UPDATE `shop`.`dblock_value` SET value = %(after)s, written_at = SYSDATE(6) + INTERVAL %(pause)s MICROSECOND,
    fence = CASE WHEN fence > %(longest)s THEN fence ELSE %(longest)s END
WHERE lock_name = '' AND value = %(before)s

-- raise_fences, waits 0 s
UPDATE `shop`.`dblock_lock` SET fence = %(fence)s WHERE fence < %(fence)s


-- end_session
BEGIN NOT ATOMIC
    DECLARE CONTINUE HANDLER FOR 1094 BEGIN END; -- it has just ended by itself
    IF EXISTS (SELECT 1 FROM information_schema.processlist
               WHERE id = %(number)s AND host = %(mark)s) THEN
        KILL CONNECTION %(number)s;
        SELECT 1;
    END IF;
END

-- see_hidden
SHOW CREATE TABLE dblock_lock

