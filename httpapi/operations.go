package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/store"
)

// ref names a thing by id or by name.
type ref jobs.Ref

// UnmarshalJSON reads a number or a text.
func (f *ref) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &f.Name)
	}
	return json.Unmarshal(data, &f.ID)
}

func refs(all []ref) []jobs.Ref {
	out := make([]jobs.Ref, len(all))
	for i := range all {
		out[i] = jobs.Ref(all[i])
	}
	return out
}

// operationBody is a request for an operation on racks.
type operationBody struct {
	Operation  string                `json:"operation"`
	Racks      []ref                 `json:"racks"`
	Site       string                `json:"site"`
	Components []ref                 `json:"components"`
	Exclude    []ref                 `json:"exclude"`
	RuleID     int64                 `json:"rule_id"`
	Conflict   string                `json:"conflict"`
	QueueFor   string                `json:"queue_for"`
	Reason     string                `json:"reason"`
	Override   *because              `json:"override"`
	Firmware   []operations.Firmware `json:"firmware"`
}

// tasksView are the tasks that a request became.
type tasksView struct {
	Tasks []taskView `json:"tasks"`
}

// operate answers requests for operations of one kind.
func (s *Server) operate(operationType string) handler {
	return func(r *request) (*reply, error) {
		var in operationBody
		if err := json.Unmarshal(r.body, &in); err != nil {
			return nil, undecodable(err)
		}
		asked := operations.Request{
			OperationType: operationType, Operation: in.Operation, Racks: refs(in.Racks), Site: in.Site, Components: refs(in.Components), Exclude: refs(in.Exclude), RuleID: in.RuleID,
			Conflict: in.Conflict, Reason: in.Reason, Firmware: in.Firmware, Visible: r.principal.Sites, Force: r.principal.May(OperationForce), By: r.caller(),
			IdempotencyKey: r.Header.Get("Idempotency-Key"),
		}
		if in.Override != nil {
			asked.Override = &in.Override.Reason
		}
		if asked.Operation == "" && operationType == "decommission" {
			asked.Operation = operationType
		}
		if in.QueueFor != "" {
			d, err := time.ParseDuration(in.QueueFor)
			if err != nil || d <= 0 {
				return nil, refuse(http.StatusBadRequest, "request_invalid", "the request does not fit the API's description").
					with(fault{Pointer: "/queue_for", Detail: "a duration that is more than nothing, such as 30m or 2h"})
			}
			asked.QueueFor = d
		}
		submitted, err := s.Operations.Submit(r.Context(), asked)
		if err != nil {
			return nil, err
		}
		return s.answerTasks(r, &submitted)
	}
}

func (s *Server) answerTasks(r *request, submitted *operations.Submitted) (*reply, error) {
	ids := make([]int64, len(submitted.Tasks))
	for i := range submitted.Tasks {
		ids[i] = submitted.Tasks[i].ID
	}
	rows, err := store.ListTasks(r.Context(), s.DB, store.TaskFilter{IDs: ids, Limit: len(ids)})
	if err != nil {
		return nil, err
	}
	byID := map[int64]*store.TaskRow{}
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	view := tasksView{Tasks: []taskView{}}
	for _, id := range ids {
		if row := byID[id]; row != nil {
			view.Tasks = append(view.Tasks, s.viewTask(row))
		}
	}
	answer := &reply{status: http.StatusCreated, body: view}
	if len(ids) == 1 {
		answer.location = fmt.Sprintf("%s/operations/tasks/%d/", apiRoot, ids[0])
	}
	if submitted.Repeated {
		answer.status = http.StatusOK
	}
	return answer, nil
}

// statusOfOperations maps the codes of refused acts on rules and tasks.
var statusOfOperations = map[string]int{
	operations.CodeRackNotFound: http.StatusNotFound,
	operations.CodeRuleNotFound: http.StatusNotFound,
	operations.CodeRuleNotBound: http.StatusNotFound,
	operations.CodeTaskNotFound: http.StatusNotFound,
	operations.CodeSiteLimited:  http.StatusForbidden,
	operations.CodeRuleMismatch: http.StatusBadRequest,
	jobs.CodeMixedSite:          http.StatusUnprocessableEntity,
}
