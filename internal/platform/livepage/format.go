package livepage

import (
	"fmt"
	"time"
)

// formatClock writes a time of the day.
func formatClock(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

// span writes a time as the page's script does.
func span(d time.Duration) string {
	switch d = max(d, 0).Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	default:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
}

func took(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
