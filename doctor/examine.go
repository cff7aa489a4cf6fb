package doctor

import (
	"context"

	"github.com/letterbox-go/letterbox/inbox"
)

// Examine looks at the inbox of repo and at its database. An error means that
// the database could not be reached at all, or that config is wrong.
func Examine(ctx context.Context, repo *inbox.Repository, config Config) (Report, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return Report{}, err
	}
	return Report{ExaminedAt: config.Clock()}, nil
}
