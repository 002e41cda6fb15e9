"""What makes a connection to MariaDB or to MySQL ready for dblock, and how the server knows it."""

from __future__ import annotations

# They replace the server's presets. A lease statement never waits for a row lock: the session that
# has it is taking the name. An idle row lock is not a forgotten client, so wait_timeout is at least
# eight hours, the usual default. tx_read_only stays: an operator may have set it on a server that
# is no longer the primary.
SETTINGS = """SET SESSION innodb_lock_wait_timeout = 0, tx_isolation = 'READ-COMMITTED',
    completion_type = 'NO_CHAIN', time_zone = '+00:00', max_statement_time = %s,
    sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_safe_updates = 0,
    sql_select_limit = 18446744073709551615, sql_big_selects = 1,
    idle_transaction_timeout = 0, idle_write_transaction_timeout = 0,
    idle_readonly_transaction_timeout = 0, wait_timeout = GREATEST(@@wait_timeout, 28800)"""

# WSREP_ON is read from a table, because not every build of the server has the variable.
WHO = """SELECT VERSION(), id, host, CONCAT_WS('/', @@server_id, @@hostname, @@port),
        @@innodb_rollback_on_timeout, (
        SELECT variable_value FROM information_schema.global_variables
        WHERE variable_name = 'WSREP_ON'
    )
    FROM information_schema.processlist WHERE id = CONNECTION_ID()"""

# The same on MySQL. A lease's statement locks its rows without waiting, where MySQL has a form for
# that; elsewhere the statement waits for one second, which is the least limit. The driver sends no
# SET autocommit if the greeting says that it is on; but a server whose preset is off says so too.
# With subquery_to_derived a subquery that locks one row would lock them all, and the server would
# refuse a DELETE with a subquery. With hypergraph_optimizer a renewal would lock the rows of all
# names. (The value 'default' is the server's own preset.)
MYSQL_SETTINGS = """SET SESSION autocommit = 1, innodb_lock_wait_timeout = 1,
    transaction_isolation = 'READ-COMMITTED', completion_type = 'NO_CHAIN', time_zone = '+00:00',
    max_execution_time = %s, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',
    sql_safe_updates = 0,
    optimizer_switch = 'subquery_to_derived=off,hypergraph_optimizer=off',
    cte_max_recursion_depth = 1000, sql_select_limit = 18446744073709551615, sql_big_selects = 1,
    wait_timeout = CAST(GREATEST(@@wait_timeout, 28800) AS UNSIGNED)"""

# Without the performance schema the host is unknown. The last column is ON if the nodes of a
# replication group all take writes: like Galera's, they do not see each other's row locks.
MYSQL_WHO = """SELECT VERSION(), CONNECTION_ID(), host,
        CONCAT_WS('/', @@server_uuid, @@hostname, @@port), @@innodb_rollback_on_timeout, (
            SELECT IF(variable_value = 'OFF', 'ON', 'OFF') FROM performance_schema.global_variables
            WHERE variable_name = 'group_replication_single_primary_mode'
        )
    FROM (SELECT 1) AS one LEFT JOIN performance_schema.processlist ON id = CONNECTION_ID()"""
