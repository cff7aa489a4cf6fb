package doctor

// SQL for PostgreSQL 13 or newer. It reads system views only; what a role may
// not see is NULL there.
const (
	postgresVersion = `SELECT split_part(current_setting('server_version'), ' ', 1)`

	postgresSettings = `
SELECT current_setting('default_transaction_isolation') AS isolation,
	current_setting('default_transaction_read_only')::bool OR pg_is_in_recovery() AS read_only,
	current_setting('synchronous_commit') AS synchronous_commit,
	current_setting('fsync')::bool AS fsync,
	current_setting('full_page_writes')::bool AS full_page_writes,
	current_setting('autovacuum')::bool AND current_setting('track_counts')::bool AS autovacuum`

	postgresRights = `SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')`

	postgresConnections = `
SELECT current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint AS most,
	count(*) AS used
FROM pg_stat_activity WHERE backend_type = 'client backend'`

	postgresBackend = `SELECT pg_backend_pid()`

	postgresClock = `SELECT clock_timestamp()`

	// Only what keeps rows alive: a snapshot, or a transaction id. Vacuum itself
	// holds nothing back.
	postgresSnapshots = `
SELECT a.pid, COALESCE(a.usename::text, '') AS role, COALESCE(a.application_name, '') AS application,
	COALESCE(a.state, a.backend_type, '') AS state, COALESCE(a.query, '') AS query, a.xact_start, a.query_start,
	COALESCE(EXTRACT(epoch FROM clock_timestamp() - a.xact_start), 0)::float8 AS seconds,
	GREATEST(age(a.backend_xmin), age(a.backend_xid), 0)::bigint AS transactions
FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid()
	AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
	AND a.pid NOT IN (SELECT v.pid FROM pg_stat_progress_vacuum v WHERE v.pid IS NOT NULL)
	AND (a.datname = current_database() AND a.xact_start < clock_timestamp() - ? * interval '1 microsecond'
		OR a.backend_type = 'walsender' AND age(a.backend_xmin) > ?)
ORDER BY a.xact_start NULLS LAST, a.pid`

	postgresPrepared = `
SELECT gid, owner::text AS owner, prepared, age(transaction)::bigint AS transactions,
	EXTRACT(epoch FROM clock_timestamp() - prepared)::float8 AS seconds
FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < clock_timestamp() - ? * interval '1 microsecond'
ORDER BY prepared`

	// A slot without a consumer holds back the same xmin for ever.
	postgresSlots = `
SELECT slot_name AS name, slot_type AS kind, active,
	COALESCE(age(xmin), 0)::bigint AS rows, COALESCE(age(catalog_xmin), 0)::bigint AS catalog,
	COALESCE(CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) END, 0)::float8 AS wal
FROM pg_replication_slots
WHERE (xmin IS NOT NULL OR catalog_xmin IS NOT NULL) AND (NOT active OR age(xmin) > ?)
ORDER BY 1`

	postgresVacuum = `
SELECT c.relname AS name, s.n_live_tup AS live, s.n_dead_tup AS dead,
	GREATEST(s.last_autovacuum, s.last_vacuum) AS vacuumed, GREATEST(s.last_autoanalyze, s.last_analyze) AS analyzed,
	COALESCE(o.enabled::bool, true) AS enabled,
	COALESCE(o.threshold, current_setting('autovacuum_vacuum_threshold'))::float8
		+ COALESCE(o.scale, current_setting('autovacuum_vacuum_scale_factor'))::float8 * s.n_live_tup AS threshold
FROM pg_class c JOIN pg_stat_all_tables s ON s.relid = c.oid
CROSS JOIN LATERAL (
	SELECT max(option_value) FILTER (WHERE option_name = 'autovacuum_enabled') AS enabled,
		max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_threshold') AS threshold,
		max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_scale_factor') AS scale
	FROM pg_options_to_table(c.reloptions)
) o
WHERE c.oid IN (to_regclass(?), to_regclass(?))
ORDER BY 1`

	postgresIndexes = `
SELECT i.relname AS name, x.indrelid = to_regclass(?) AS on_messages, x.indisvalid AND x.indisready AS valid,
	pg_get_indexdef(x.indexrelid) AS definition,
	ARRAY_TO_STRING(ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = x.indrelid AND a.attnum = ANY (x.indkey)), ' ')
		|| ' ' || COALESCE(pg_get_expr(x.indpred, x.indrelid), '') || ' ' || COALESCE(pg_get_expr(x.indexprs, x.indrelid), '') AS uses
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
WHERE x.indrelid IN (to_regclass(?), to_regclass(?))
ORDER BY 1`

	postgresSizes = `
SELECT c.relname AS name, GREATEST(c.reltuples, 0)::float8 AS rows,
	pg_relation_size(c.oid)::float8 AS bytes,
	(pg_table_size(c.oid) - pg_relation_size(c.oid))::float8 AS beside,
	pg_indexes_size(c.oid)::float8 AS indexes
FROM pg_class c WHERE c.oid IN (to_regclass(?), to_regclass(?))
ORDER BY 1`

	// What accepting looks up; the statement of the claim comes from the inbox.
	postgresLookup = `
EXPLAIN (FORMAT JSON) SELECT m.fingerprint
FROM unnest(ARRAY['a']::text[], ARRAY['b']::text[], ARRAY['c']::text[]) AS u (source, message_id, name)
JOIN %s m ON m.source = u.source AND m.message_id = u.message_id AND m.name = u.name`
)
