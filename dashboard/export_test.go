package dashboard

// RouteInfo is a route as tests see it.
type RouteInfo struct {
	Method, Pattern string
	Level           Level
}

// Routes are all routes.
func Routes() []RouteInfo {
	list := make([]RouteInfo, len(routes))
	for i, r := range routes {
		list[i] = RouteInfo{r.method, r.pattern, r.level}
	}
	return list
}

var (
	Visible     = visible
	Number      = number
	Span        = span
	Description = description
)

// RestoreLineEnds is restoreLineEnds.
func RestoreLineEnds(text string, stored []byte) string { return string(restoreLineEnds(text, stored)) }

// Diff writes a comparison as text, a sign before each line.
func Diff(before, after string) (text string) {
	lines, _ := diff(before, after)
	for _, l := range lines {
		text += l.Sign() + l.Text + "\n"
	}
	return text
}
