package httpapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/musterhq/muster/jobs"
)

// question is what a caller asks to do, in a body.
type question struct {
	Workflow   string          `json:"workflow"`
	Site       string          `json:"site"`
	IDs        []int64         `json:"device_ids"`
	Names      []string        `json:"device_names"`
	Parameters json.RawMessage `json:"parameters"`
	Reason     string          `json:"reason"` // of a submission
}

// asked reads the body of a question or a submission.
func (r *request) asked() (question, jobs.Request, error) {
	var q question
	if err := json.Unmarshal(r.body, &q); err != nil {
		return q, jobs.Request{}, undecodable(err)
	}
	devices := make([]jobs.Ref, 0, len(q.IDs)+len(q.Names))
	for _, id := range q.IDs {
		devices = append(devices, jobs.Ref{ID: id})
	}
	for _, name := range q.Names {
		devices = append(devices, jobs.Ref{Name: name})
	}
	return q, jobs.Request{Workflow: q.Workflow, Devices: devices, Site: q.Site, Parameters: q.Parameters, Visible: r.principal.Sites}, nil
}

// eligibilityView is a report of an admission.
type eligibilityView struct {
	Workflow      string              `json:"workflow"`
	Available     bool                `json:"available"`
	Eligible      bool                `json:"eligible"`
	CheckedAt     time.Time           `json:"checked_at"`
	BundleVersion string              `json:"bundle_version"`
	Parameters    map[string]any      `json:"parameters"`
	Refusals      []refusalView       `json:"refusals"`
	Devices       []deviceEligibility `json:"devices"`
}

type deviceEligibility struct {
	ID       *int64        `json:"id"`
	Name     *string       `json:"name"`
	Site     *string       `json:"site"`
	Eligible bool          `json:"eligible"`
	Refusals []refusalView `json:"refusals"`
}

// sharedReason is why devices are refused, all of them alike.
type sharedReason struct {
	refusalView
	Names []string
}

// Reasons gives the refusals of the devices, each once with the devices that it
// is of.
func (v *eligibilityView) Reasons() []sharedReason {
	var all []sharedReason
	for i := range v.Devices {
		d := &v.Devices[i]
		name := "a device"
		switch {
		case d.Name != nil:
			name = *d.Name
		case d.ID != nil:
			name = fmt.Sprintf("device %d", *d.ID)
		}
		for _, r := range d.Refusals {
			at := slices.IndexFunc(all, func(one sharedReason) bool { return reflect.DeepEqual(one.refusalView, r) })
			if at < 0 {
				at, all = len(all), append(all, sharedReason{refusalView: r})
			}
			all[at].Names = append(all[at].Names, name)
		}
	}
	return all
}

// checkEligibility refuses nothing itself: whatever is wrong with the question
// stands in the answer.
func (s *Server) checkEligibility(r *request) (*reply, error) {
	_, asked, err := r.asked()
	if err != nil {
		return nil, err
	}
	report, err := s.Jobs.Check(r.Context(), asked)
	if err != nil {
		return nil, err
	}
	return ok(viewReport(&report, false)), nil
}

// viewReport shows a report, of its devices all or only those that are refused.
func viewReport(r *jobs.Report, refused bool) *eligibilityView {
	v := &eligibilityView{
		Workflow: r.Workflow, Available: r.Available, Eligible: r.Admitted(), CheckedAt: r.At.UTC(), BundleVersion: r.BundleVersion,
		Parameters: r.Parameters, Refusals: viewReasons(r.Refusals), Devices: []deviceEligibility{},
	}
	for i := range r.Devices {
		if d := &r.Devices[i]; !refused || len(d.Refusals) > 0 {
			v.Devices = append(v.Devices, viewVerdict(d, r.Parameters != nil))
		}
	}
	return v
}

// viewVerdict shows what is said of one device. Without parameters no gate was
// asked.
func viewVerdict(d *jobs.Verdict, judged bool) deviceEligibility {
	v := deviceEligibility{Name: orNil(d.Name), Site: orNil(d.Site), Eligible: judged && len(d.Refusals) == 0, Refusals: viewReasons(d.Refusals)}
	if d.ID != 0 {
		v.ID = &d.ID
		return v
	}
	if v.Name = orNil(d.Ref.Name); d.Ref.ID != 0 {
		v.ID = &d.Ref.ID
	}
	return v
}

func viewReasons(refused []jobs.Refusal) []refusalView {
	views := make([]refusalView, len(refused))
	for i := range refused {
		r := &refused[i]
		views[i] = refusalView{
			Code: r.Code, Message: r.Message, Gate: orNil(r.Gate), Field: orNil(r.Path), Actual: orNil(r.Actual), Expected: orNil(r.Expected),
			Condition: orNil(r.ConditionType), Pos: orNil(r.Policy), Holder: orNil(r.Holder),
		}
	}
	return views
}
