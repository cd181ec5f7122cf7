package main

// The types below are the part of Grafana's format that is used here, in the order of the fields in the files.

type dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Version       int        `json:"version"`
	Editable      bool       `json:"editable"`
	GraphTooltip  int        `json:"graphTooltip"`
	Refresh       string     `json:"refresh"`
	Time          timeRange  `json:"time"`
	Timezone      string     `json:"timezone"`
	Templating    variables  `json:"templating"`
	Annotations   variables  `json:"annotations"`
	Links         []link     `json:"links"`
	Panels        []anyPanel `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type variables struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Type       string      `json:"type"`
	Datasource *datasource `json:"datasource,omitempty"`
	Query      any         `json:"query"`
	Definition string      `json:"definition,omitempty"`
	Refresh    int         `json:"refresh"`
	Sort       int         `json:"sort"`
}

type variableQuery struct {
	Query string `json:"query"`
	RefID string `json:"refId"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// link leads to the dashboards with the same tag.
type link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type"`
	Tags        []string `json:"tags"`
	AsDropdown  bool     `json:"asDropdown"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
}

type anyPanel struct {
	ID          int          `json:"id"`
	Type        string       `json:"type"`
	Title       string       `json:"title"`
	Description string       `json:"description,omitempty"`
	Collapsed   *bool        `json:"collapsed,omitempty"`
	Panels      *[]anyPanel  `json:"panels,omitempty"`
	Datasource  *datasource  `json:"datasource,omitempty"`
	GridPos     place        `json:"gridPos"`
	FieldConfig *fieldConfig `json:"fieldConfig,omitempty"`
	Targets     []target     `json:"targets,omitempty"`
	Options     any          `json:"options,omitempty"`
}

type place struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type fieldConfig struct {
	Defaults  fieldDefaults `json:"defaults"`
	Overrides []any         `json:"overrides"`
}

type fieldDefaults struct {
	Unit       string      `json:"unit"`
	Min        *int        `json:"min,omitempty"`
	Color      *colorMode  `json:"color,omitempty"`
	Thresholds *thresholds `json:"thresholds,omitempty"`
	Custom     *drawing    `json:"custom,omitempty"`
}

type colorMode struct {
	Mode string `json:"mode"`
}

type thresholds struct {
	Mode  string `json:"mode"`
	Steps []step `json:"steps"`
}

// step holds from a value on, and without one for all smaller ones.
type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

type drawing struct {
	LineWidth   int       `json:"lineWidth"`
	FillOpacity int       `json:"fillOpacity"`
	Stacking    *stacking `json:"stacking,omitempty"`
}

type stacking struct {
	Mode  string `json:"mode"`
	Group string `json:"group"`
}

type target struct {
	RefID        string     `json:"refId"`
	Datasource   datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
	Instant      bool       `json:"instant"`
	Range        bool       `json:"range"`
}

type numberOptions struct {
	ReduceOptions reduceOptions `json:"reduceOptions"`
	ColorMode     string        `json:"colorMode"`
	GraphMode     string        `json:"graphMode"`
	TextMode      string        `json:"textMode"`
}

type reduceOptions struct {
	Calcs  []string `json:"calcs"`
	Fields string   `json:"fields"`
	Values bool     `json:"values"`
}

type graphOptions struct {
	Legend  legend  `json:"legend"`
	Tooltip tooltip `json:"tooltip"`
}

type legend struct {
	DisplayMode string `json:"displayMode"`
	Placement   string `json:"placement"`
	ShowLegend  bool   `json:"showLegend"`
}

type tooltip struct {
	Mode string `json:"mode"`
	Sort string `json:"sort"`
}

// tag is of all dashboards of this operator.
const tag = "berg-operator"

// chosen is the data source that the user of a dashboard chooses.
var chosen = datasource{Type: "prometheus", UID: "${datasource}"}

// Sizes on Grafana's grid, which is 24 wide.
const (
	gridWidth, rowHeight      = 24, 1
	numberWidth, numberHeight = 4, 4
	graphWidth, graphHeight   = 8, 8
)

func (b board) grafana() dashboard {
	const jobs = "label_values(berg_operator_build_info, job)"
	d := dashboard{
		UID: b.uid, Title: b.title, Description: b.text, Tags: []string{tag},
		SchemaVersion: 39, Version: 1, Editable: true, GraphTooltip: 1,
		Refresh: "30s", Time: timeRange{"now-3h", "now"}, Timezone: "browser",
		Templating: variables{[]variable{
			{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Refresh: 1},
			{Name: "job", Label: "Job", Type: "query", Datasource: &chosen, Query: variableQuery{jobs, "job"}, Definition: jobs, Refresh: 2, Sort: 1},
		}},
		Annotations: variables{[]variable{}},
		Links:       []link{{Title: "berg-operator", Type: "dashboards", Tags: []string{tag}, AsDropdown: true, IncludeVars: true, KeepTime: true}},
	}
	y := 0
	add := func(p anyPanel) {
		p.ID = len(d.Panels) + 1
		d.Panels = append(d.Panels, p)
	}
	for _, r := range b.rows {
		add(anyPanel{Type: "row", Title: r.title, Collapsed: new(bool), Panels: &[]anyPanel{}, GridPos: place{rowHeight, gridWidth, 0, y}})
		y += rowHeight
		x, height := 0, 0
		for _, p := range r.panels {
			drawn := p.grafana()
			// A row of the grid ends where it is full, and where the height changes.
			if x+drawn.GridPos.W > gridWidth || height != 0 && drawn.GridPos.H != height {
				x, y = 0, y+height
			}
			drawn.GridPos.X, drawn.GridPos.Y = x, y
			x, height = x+drawn.GridPos.W, drawn.GridPos.H
			add(drawn)
		}
		y += height
	}
	return d
}

func (p panel) grafana() anyPanel {
	config := fieldConfig{Defaults: fieldDefaults{Unit: p.unit}, Overrides: []any{}}
	drawn := anyPanel{Title: p.title, Description: p.text, Datasource: &chosen, FieldConfig: &config}
	if p.number {
		drawn.Type, drawn.GridPos = "stat", place{H: numberHeight, W: numberWidth}
		drawn.Options = numberOptions{reduceOptions{Calcs: []string{"lastNotNull"}}, "value", "none", "auto"}
	} else {
		drawn.Type, drawn.GridPos = "timeseries", place{H: graphHeight, W: graphWidth}
		drawn.Options = graphOptions{legend{"list", "bottom", true}, tooltip{"multi", "desc"}}
		config.Defaults.Min, config.Defaults.Custom = new(int), &drawing{LineWidth: 1, FillOpacity: 10}
		if p.stacked {
			config.Defaults.Custom.Stacking = &stacking{"normal", "A"}
		}
	}
	if len(p.colors) > 0 {
		config.Defaults.Color, config.Defaults.Thresholds = &colorMode{"thresholds"}, &thresholds{Mode: "absolute"}
		for i, c := range p.colors {
			s := step{Color: c.name}
			if i > 0 {
				s.Value = &c.from
			}
			config.Defaults.Thresholds.Steps = append(config.Defaults.Thresholds.Steps, s)
		}
	}
	for i, q := range p.queries {
		drawn.Targets = append(drawn.Targets, target{
			RefID: string(rune('A' + i)), Datasource: chosen, Expr: q.expr, LegendFormat: q.legend, Instant: p.number, Range: !p.number,
		})
	}
	return drawn
}
