package plan

// Share distributes a limit evenly: one for each that wants any, then another one, until each has what it wants or the limit is used up.
// It returns the count of each.
func Share(wanted []int, limit int) []int {
	counts := make([]int, len(wanted))
	for added := true; added && limit > 0; {
		added = false
		for n := range wanted {
			if counts[n] < wanted[n] && limit > 0 {
				counts[n]++
				limit--
				added = true
			}
		}
	}
	return counts
}
