package inbox

// calls splits a claim into handler calls, in order: one message each, and for
// names with a batch handler as many as follow without breaking the order of an
// ordering key.
func (p *Processor) calls(claimed []*Claimed) [][]*Claimed {
	var calls [][]*Claimed
	open := map[string]int{}  // name -> its last call
	keyed := map[string]int{} // ordering key -> the last call that holds one of its messages
	for _, c := range claimed {
		at, ok := open[c.Name]
		if last, held := keyed[c.OrderingKey]; ok && held && last > at {
			ok = false // an earlier message of the key comes after that call
		}
		if !ok || p.routes[c.Name].many == nil {
			at = len(calls)
			calls = append(calls, nil)
			open[c.Name] = at
		}
		calls[at] = append(calls[at], c)
		if c.OrderingKey != "" {
			keyed[c.OrderingKey] = at
		}
	}
	return calls
}
