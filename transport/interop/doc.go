// Package interop holds tests only: clients and libraries that others wrote send
// and sign, and httpinbox takes it. It is a module of its own, so that nobody
// else depends on them.
package interop
