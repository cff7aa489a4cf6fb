package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/letterbox-go/letterbox/dedupe"
)

// Config holds the settings of a Store. The zero value is ready to use.
type Config struct {
	// Prefix begins every key in Redis. Default "dedupe:".
	Prefix string
}

// Store is a dedupe.Store in Redis.
type Store struct {
	client redis.Scripter
	prefix string
}

var _ dedupe.Store = (*Store)(nil)

// New returns a store. The client is any of go-redis: single, sentinel, cluster
// or ring. It sends nothing yet.
func New(client redis.Scripter, config Config) (*Store, error) {
	if client == nil {
		return nil, errors.New("redisstore: the client is nil")
	}
	if config.Prefix == "" {
		config.Prefix = "dedupe:"
	}
	return &Store{client: client, prefix: config.Prefix}, nil
}

// The value of a key is r or c (reserved, confirmed) and the token.
var (
	// reserve returns {state, milliseconds}: 0 taken, 1 held, 2 confirmed.
	reserve = redis.NewScript(`
local value = redis.call('GET', KEYS[1])
if not value or value == 'r' .. ARGV[1] then
	redis.call('SET', KEYS[1], 'r' .. ARGV[1], 'PX', ARGV[2])
	return {0, 0}
end
local left = redis.call('PTTL', KEYS[1])
if string.sub(value, 1, 1) == 'c' then return {2, left} end
return {1, left}`)

	// confirm returns 1 when the token still held the key.
	confirm = redis.NewScript(`
local value = redis.call('GET', KEYS[1])
local held = 0
if value == 'r' .. ARGV[1] or value == 'c' .. ARGV[1] then held = 1 end
if value and string.sub(value, 1, 1) == 'c' and redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then
	return held
end
redis.call('SET', KEYS[1], 'c' .. ARGV[1], 'PX', ARGV[2])
return held`)

	// release returns 1 when the token held the key.
	release = redis.NewScript(`
if redis.call('GET', KEYS[1]) == 'r' .. ARGV[1] then
	redis.call('DEL', KEYS[1])
	return 1
end
return 0`)
)

// Reserve takes a free key. See [dedupe.Store].
func (s *Store) Reserve(ctx context.Context, key dedupe.Key, token string, lease time.Duration) (dedupe.Reservation, error) {
	answer, err := reserve.Run(ctx, s.client, s.keys(key), token, milliseconds(lease)).Int64Slice()
	if err != nil {
		return dedupe.Reservation{}, fmt.Errorf("redisstore: reserve: %w", err)
	}
	if len(answer) != 2 {
		return dedupe.Reservation{}, fmt.Errorf("redisstore: reserve: unexpected answer %v", answer)
	}
	left := time.Duration(answer[1]) * time.Millisecond
	switch answer[0] {
	case 0:
		return dedupe.Reservation{State: dedupe.Reserved, Remaining: lease}, nil
	case 1:
		return dedupe.Reservation{State: dedupe.Held, Remaining: left}, nil
	case 2:
		return dedupe.Reservation{State: dedupe.Confirmed, Remaining: left}, nil
	}
	return dedupe.Reservation{}, fmt.Errorf("redisstore: reserve: unexpected answer %v", answer)
}

// Confirm remembers the key. See [dedupe.Store].
func (s *Store) Confirm(ctx context.Context, key dedupe.Key, token string, ttl time.Duration) (held bool, err error) {
	n, err := confirm.Run(ctx, s.client, s.keys(key), token, milliseconds(ttl)).Int64()
	if err != nil {
		return false, fmt.Errorf("redisstore: confirm: %w", err)
	}
	return n == 1, nil
}

// Release frees a key that token holds. See [dedupe.Store].
func (s *Store) Release(ctx context.Context, key dedupe.Key, token string) (held bool, err error) {
	n, err := release.Run(ctx, s.client, s.keys(key), token).Int64()
	if err != nil {
		return false, fmt.Errorf("redisstore: release: %w", err)
	}
	return n == 1, nil
}

// keys makes one name of a key. The length says where the scope ends.
func (s *Store) keys(key dedupe.Key) []string {
	return []string{s.prefix + strconv.Itoa(len(key.Scope)) + ":" + key.Scope + ":" + key.ID}
}

// milliseconds rounds up: nothing is forgotten early.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
