package netbox

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// refusal is why a write is not done. It is an error, so that the world takes
// nothing of the write.
type refusal struct {
	status int
	body   []byte
	etag   string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s", r.status, r.body) }

func refused(status int, detail string) *refusal {
	return &refusal{status: status, body: append(wire.Quote([]byte(`{"detail":`), detail), '}')}
}

// change is the writing of one object.
type change struct {
	*face
	s        *world.State
	k        *kind
	problems map[string]any // member → texts
}

func (c *change) problem(member, text string) {
	list, _ := c.problems[member].([]string)
	c.problems[member] = append(list, text)
}

// answer sends the refusal of a write, or reports that there was none.
func (x *exchange) refusedWith(err error) bool {
	if err == nil {
		return false
	}
	var r *refusal
	if !errors.As(err, &r) {
		x.send(http.StatusInternalServerError, wire.Value(nil, map[string]string{"error": err.Error(), "exception": "OSError", "netbox_version": x.name, "python_version": x.python}))
		return true
	}
	if r.etag != "" {
		x.w.Header().Set("ETag", r.etag)
	}
	x.send(r.status, r.body)
	return true
}

// object reads a body that must be one object.
func (x *exchange) object() (map[string]any, bool) {
	body, ok := x.body()
	if !ok {
		return nil, false
	}
	o, ok := body.(map[string]any)
	if !ok {
		x.send(http.StatusBadRequest, wire.Value(nil, map[string][]string{x.general(): {"Invalid data. Expected a dictionary, but got " + typeName(body) + "."}}))
		return nil, false
	}
	return o, true
}

// typeName is Python's name of a value's type.
func typeName(value any) string {
	switch value.(type) {
	case nil:
		return "NoneType"
	case string:
		return "str"
	case bool:
		return "bool"
	case []any:
		return "list"
	case map[string]any:
		return "dict"
	}
	return "int"
}

// effect is what the journal says of a write.
func (x *exchange) effect(op string, k *kind, o *world.Object, id int) world.Effect {
	subject := k.name + "/" + strconv.Itoa(id)
	if o != nil && o.Name != "" {
		subject = o.Name
	}
	return world.Effect{Face: "netbox", Op: op + " " + k.name, Subject: subject}
}

// patch changes one object.
func (x *exchange) patch(k *kind, id int, whole bool) {
	body, ok := x.object()
	if !ok {
		return
	}
	var written *world.Object
	var before *world.Object
	x.world.Read(func(s *world.State) { before = s.Object(k.name, id) })
	err := x.world.Do(x.effect("patch", k, before, id), func(s *world.State) error {
		o := edit(s, k, id)
		if o == nil || !x.mine(s, o) {
			return refused(http.StatusNotFound, x.noSuch(k))
		}
		if match := x.r.Header.Get("If-Match"); match != "" && match != "*" && x.generation >= 46 && !slices.Contains(strings.Split(match, ", "), etag(o)) {
			r := refused(http.StatusPreconditionFailed, "Precondition failed.")
			r.etag = etag(o)
			return r
		}
		c := &change{face: x.face, s: s, k: k, problems: map[string]any{}}
		if crash := c.apply(o, body, whole); crash != "" {
			return x.crash(crash)
		}
		if len(c.problems) > 0 {
			return &refusal{status: http.StatusBadRequest, body: wire.Value(nil, c.problems)}
		}
		if !x.mine(s, o) {
			return refused(http.StatusForbidden, noPermission)
		}
		written = o
		s.ChangeObject(o)
		return nil
	})
	if !x.refusedWith(err) {
		x.show(http.StatusOK, k, written, k.full)
	}
}

// edit gives a copy of an object to be changed, or nil.
func edit(s *world.State, k *kind, id int) *world.Object {
	if s.Object(k.name, id) == nil {
		return nil
	}
	o := s.Objects.Edit(world.ObjectKey(k.name, id))
	if o.Fields == nil {
		o.Fields = map[string]any{}
	}
	if o.Custom == nil {
		o.Custom = map[string]any{}
	}
	return o
}

// mine reports whether the token's user may change an object.
func (x *exchange) mine(s *world.State, o *world.Object) bool {
	if x.token.Site == "" {
		return true
	}
	site := s.Object(world.KindSite, o.Int("site"))
	return site != nil && site.Slug == x.token.Site
}

func (x *exchange) crash(text string) *refusal {
	return &refusal{status: http.StatusInternalServerError, body: fmt.Appendf(nil, `{"error":%s,"exception":"TypeError","netbox_version":%q,"python_version":%q}`,
		wire.Quote(nil, text), x.name, x.python)}
}

// apply takes a body into an object. What is wrong goes into the problems; crash
// is what makes some releases fall over.
func (c *change) apply(o *world.Object, body map[string]any, whole bool) (crash string) {
	given := map[string]bool{}
	for i := range c.k.inputs {
		in := &c.k.inputs[i]
		value, ok := body[in.name]
		target := in.name
		if in.form == "role" {
			target = "role" // 3.7 takes it by its old name too
		}
		if ok {
			given[target] = true
			c.take(o, in, target, value)
		}
	}
	for i := range c.k.inputs {
		if in := &c.k.inputs[i]; in.required && whole && !given[in.name] {
			c.problem(in.name, "This field is required.")
		}
	}
	c.takeTags(o, body)
	if len(c.problems) > 0 {
		return ""
	}
	if values, ok := body["custom_fields"].(map[string]any); ok && c.k.name == world.KindDevice {
		if crash := c.setCustoms(o, values); crash != "" || len(c.problems) > 0 {
			return crash
		}
	}
	c.check(o)
	return ""
}

// take reads one member.
func (c *change) take(o *world.Object, in *input, target string, value any) {
	if value == nil {
		switch {
		case in.form == "choice" && !in.null:
			c.problem(in.name, "This field may not be blank.")
		case !in.null:
			c.problem(in.name, "This field may not be null.")
		case target == "name":
			o.Name = ""
		default:
			delete(o.Fields, target)
		}
		return
	}
	switch in.form {
	case "text":
		c.takeText(o, in, target, value)
	case "choice":
		c.takeChoice(o, in, value)
	case "ref", "role":
		id, problems := c.reference(references[target], value)
		for _, problem := range problems {
			c.problem(in.name, problem)
		}
		if len(problems) == 0 {
			o.Fields[target] = id
		}
	case "number":
		n, ok := number(value)
		if text, isText := value.(string); isText {
			var err error
			n, err = strconv.ParseFloat(text, 64)
			ok = err == nil
		}
		if !ok {
			c.problem(in.name, "A valid number is required.")
			return
		}
		o.Fields[target] = n
	default:
		o.Fields[target] = value
	}
}

func (c *change) takeText(o *world.Object, in *input, target string, value any) {
	text, ok := value.(string)
	if n, isNumber := number(value); isNumber {
		text, ok = strconv.FormatFloat(n, 'f', -1, 64), true
	}
	text = strings.TrimSpace(text)
	switch {
	case !ok:
		c.problem(in.name, "Not a valid string.")
		return
	case len([]rune(text)) > in.max:
		c.problem(in.name, fmt.Sprintf("Ensure this field has no more than %d characters.", in.max))
		return
	case text == "" && in.required:
		c.problem(in.name, "This field may not be blank.")
		return
	}
	switch target {
	case "name", "model", "address":
		o.Name = text
	case "slug":
		o.Slug = text
	case "asset_tag":
		o.Fields[target] = text
		if text == "" && c.generation >= 45 {
			delete(o.Fields, target)
		}
	default:
		o.Fields[target] = text
	}
}

func (c *change) takeChoice(o *world.Object, in *input, value any) {
	switch v := value.(type) {
	case map[string]any, []any:
		c.problem(in.name, `Value must be passed directly (e.g. "foo": 123); do not use a dictionary or list.`)
	case string:
		switch {
		case v == "" && in.null:
			delete(o.Fields, in.name)
		case v == "":
			c.problem(in.name, "This field may not be blank.")
		case slices.ContainsFunc(choiceLabels[o.Kind+"."+in.name], func(c [2]string) bool { return c[0] == v }):
			o.Fields[in.name] = v
		default:
			c.problem(in.name, v+" is not a valid choice.")
		}
	default:
		c.problem(in.name, python(value, false)+" is not a valid choice.")
	}
}
