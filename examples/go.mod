module github.com/letterbox-go/letterbox/examples

go 1.25.0

require (
	github.com/danielgtaylor/huma/v2 v2.37.2
	github.com/jackc/pgx/v5 v5.12.0
	github.com/letterbox-go/letterbox v0.0.0
	github.com/uptrace/bun v1.3.0
	github.com/uptrace/bun/dialect/pgdialect v1.3.0
	github.com/uptrace/bun/dialect/sqlitedialect v1.3.0
	modernc.org/sqlite v1.57.0
)

replace github.com/letterbox-go/letterbox => ../
