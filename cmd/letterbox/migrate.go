package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/inbox"
)

func (a *app) migrate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Make or update the tables: up, status, print-sql", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(cmd, "there is no command %q", args[0])
			}
			return usage(cmd, "say what: up, status or print-sql")
		},
	}
	cmd.AddCommand(a.migrateUp(), a.migrateStatus(), a.migratePrint())
	return cmd
}

func (a *app) migrateUp() *cobra.Command {
	var ask assent
	cmd := &cobra.Command{
		Use: "up", Short: "Bring the tables up to date; running programs can go on", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			repo, closeDB, err := a.openAny(inbox.Config{}, ask.dryRun)
			if err != nil {
				return err
			}
			defer closeDB()
			current, newest, err := repo.SchemaVersion(ctx)
			if err != nil {
				return err
			}
			if ask.dryRun {
				return a.done("migrate up", true, int64(max(newest-current, 0)), fmt.Sprintf("Would go from version %d to %d.", current, newest))
			}
			if err := repo.Migrate(ctx); err != nil {
				return err
			}
			sentence := fmt.Sprintf("The tables are now at version %d.", newest)
			if current == newest {
				sentence = fmt.Sprintf("The tables are at version %d already.", newest)
			}
			return a.done("migrate up", false, int64(newest-current), sentence)
		},
	}
	ask.add(cmd, false)
	return cmd
}

func (a *app) migrateStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Say which version the tables have; exit with 1 if it is not the newest", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			repo, closeDB, err := a.openAny(inbox.Config{}, true)
			if err != nil {
				return err
			}
			defer closeDB()
			current, newest, err := repo.SchemaVersion(cmd.Context())
			if err != nil {
				return err
			}
			if a.output == "json" {
				err = a.writeJSON(struct {
					Current int `json:"current"`
					Newest  int `json:"newest"`
				}{current, newest})
			} else {
				_, err = fmt.Fprintf(a.stdout, "The tables have version %d, the newest is %d.\n", current, newest)
			}
			if err == nil && current != newest {
				err = &stepError{err: fmt.Errorf("the tables are not at version %d", newest), next: "letterbox migrate up, or a newer letterbox."}
			}
			return err
		},
	}
}

const migratePrintLong = `Print the SQL that migrate up would run, for a database where somebody else
applies it. Without a database URL, --dialect says for which product.`

func (a *app) migratePrint() *cobra.Command {
	var dialect string
	from := -1
	cmd := &cobra.Command{
		Use: "print-sql", Short: "Print the SQL of the migration", Long: migratePrintLong, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch dialect {
			case "":
			case "postgres":
				a.url = "postgres://nobody@localhost/none"
			case "sqlite":
				a.url = "file:none"
			default:
				return usage(cmd, "--dialect must be postgres or sqlite, not %q", dialect)
			}
			repo, closeDB, err := a.openAny(inbox.Config{}, dialect == "")
			if err != nil {
				return err
			}
			defer closeDB()
			if from < 0 {
				if from, err = versionOf(cmd.Context(), repo, dialect); err != nil {
					return err
				}
			}
			text, err := repo.MigrationSQL(from)
			if err != nil {
				return err
			}
			if text == "" {
				text = "-- The tables are up to date.\n"
			}
			_, err = fmt.Fprint(a.stdout, text)
			return err
		},
	}
	cmd.Flags().StringVar(&dialect, "dialect", "", "postgres or sqlite, without asking a database")
	cmd.Flags().IntVar(&from, "from", -1, "the version the tables have (default: what the database says)")
	choices(cmd, "dialect", "postgres", "sqlite")
	return cmd
}

// versionOf asks the database; without one the tables are new.
func versionOf(ctx context.Context, repo *inbox.Repository, dialect string) (int, error) {
	if dialect != "" {
		return 0, nil
	}
	current, _, err := repo.SchemaVersion(ctx)
	return current, err
}
