package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/inbox"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// app is one call of the command.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	url, schema, prefix, output, actor string
	verbose                            bool

	started bool   // arguments and flags were understood
	secret  string // must not be shown
}

const rootLong = `Look into the inbox, and get stuck messages going again.

The database is named by --database-url or the variable DATABASE_URL:
  postgres://user:password@host/database    PostgreSQL
  file:/path/to/inbox.db                    SQLite`

const rootExample = `  letterbox doctor                                  what is wrong, and what to do
  letterbox list --status dead --name credit_account
  letterbox retry-all --name credit_account --dry-run`

const (
	groupLook   = "look"
	groupAct    = "act"
	groupTables = "tables"
	groupMore   = "more"
)

// run is the whole program; it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && !a.started {
		err = &usageError{err: err, next: "See letterbox --help."}
	}
	return a.report(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "letterbox",
		Short:         "Look into the inbox, and get stuck messages going again",
		Long:          rootLong,
		Example:       rootExample,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if a.output != "table" && a.output != "json" {
				return fmt.Errorf("--output must be table or json, not %q", a.output)
			}
			a.started = true
			cmd.SetContext(inbox.WithActor(cmd.Context(), a.actor))
			return nil
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.url, "database-url", "", "the database (default: the variable DATABASE_URL)")
	flags.StringVar(&a.schema, "schema", "", "PostgreSQL schema of the tables (default: the search path)")
	flags.StringVar(&a.prefix, "prefix", "inbox", "how the tables' names begin")
	flags.StringVarP(&a.output, "output", "o", "table", "table or json")
	flags.StringVar(&a.actor, "actor", defaultActor(), "who acts, for the audit")
	flags.Lookup("actor").DefValue = "the user"
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "log what happens to standard error")
	choices(root, "output", "table", "json")
	root.AddGroup(
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupAct, Title: "Act (--dry-run shows what would happen, --yes does not ask):"},
		&cobra.Group{ID: groupTables, Title: "Tables:"},
		&cobra.Group{ID: groupMore, Title: "More:"},
	)
	root.SetHelpCommandGroupID(groupMore)
	root.SetCompletionCommandGroupID(groupMore)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	cobra.EnableCommandSorting = false
	add(groupLook, a.doctor(), a.stats(), a.list(), a.show(), a.export(), a.dashboard())
	add(groupAct, a.retry(), a.retryAll(), a.edit(), a.discard(), a.skipKey(), a.pause(), a.resume())
	add(groupTables, a.migrate(), a.sweep())
	return root
}

// choices completes the values of a flag.
func choices(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// version is what go install has noted down.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text := info.Main.Version
	if text == "" || text == "(devel)" {
		text = "devel"
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				text += " " + s.Value
			}
		}
	}
	return text + ", " + info.GoVersion
}

func defaultActor() string {
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "letterbox"
}
