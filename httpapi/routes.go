package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"
)

const (
	apiRoot      = "/api/v1"
	documentPath = apiRoot + "/openapi.json"
)

// handler answers a request that was let in and fits the document.
type handler func(r *request) (*reply, error)

// route is one operation. Exactly one of answer, page, plain and stream is set;
// a form comes with the page that it is on.
type route struct {
	method  string
	path    string // as the document spells it
	scope   string // that the caller must hold; "" only where public
	public  bool   // asks for nobody's name
	local   bool   // from this machine it needs no scope
	session bool   // a session will do for a token, as on every page
	answer  handler
	page    pageHandler      // for people; a session will do for a token
	form    formHandler      // what a form of the page asks for
	reads   string           // the scope of the page of a form
	plain   http.HandlerFunc // for what is not JSON
	stream  streamHandler    // for events
}

// table lists every operation there is.
func (s *Server) table() []route {
	get := func(path, scope string, h handler) route {
		return route{method: http.MethodGet, path: apiRoot + path, scope: scope, answer: h}
	}
	post := func(path, scope string, h handler) route {
		return route{method: http.MethodPost, path: apiRoot + path, scope: scope, answer: h}
	}
	put := func(path, scope string, h handler) route {
		return route{method: http.MethodPut, path: apiRoot + path, scope: scope, answer: h}
	}
	remove := func(path, scope string, h handler) route {
		return route{method: http.MethodDelete, path: apiRoot + path, scope: scope, answer: h}
	}
	return []route{
		get("/devices/", DeviceRead, s.listDevices),
		get("/devices/{id}/", DeviceRead, s.showDevice),
		get("/devices/{id}/lifecycle-events/", DeviceRead, s.listEvents),
		get("/devices/{id}/explain/", DeviceRead, s.explainDevice),
		post("/devices/{id}/promote/", DeviceWrite, s.promoteDevice),
		post("/devices/{id}/enrollment-proof/", EnrollmentProofWrite, s.writeProof),
		post("/devices/{id}/latches/", LatchWrite, s.recordLatch),
		post("/devices/triage/", DeviceWrite, s.triageDevices),
		get("/device-conditions/", ConditionRead, s.listConditions),
		post("/device-conditions/", ConditionWrite, s.postCondition),
		post("/device-conditions/apply/", ConditionWrite, s.postSnapshot),
		get("/workflows/", JobRead, s.listWorkflows),
		post("/eligibility/check/", JobRead, s.checkEligibility),
		get("/jobs/", JobRead, s.listJobs),
		post("/jobs/", JobWrite, s.submitJob),
		get("/jobs/{job}/", JobRead, s.showJob),
		get("/jobs/{job}/devices/", JobRead, s.listJobDevices),
		{method: http.MethodGet, path: apiRoot + "/jobs/{job}/events/", scope: JobRead, stream: s.followJob},
		post("/jobs/{job}/cancel/", JobWrite, s.cancelJob),
		get("/breakers/", OperationRead, s.listBreakers),
		post("/breakers/{breaker}/reset/", OperationWrite, s.resetBreaker),
		post("/operations/power/", OperationWrite, s.operate("power_control")),
		post("/operations/firmware/", OperationWrite, s.operate("firmware_control")),
		post("/operations/decommission/", OperationWrite, s.operate("decommission")),
		get("/operations/tasks/", OperationRead, s.listTasks),
		get("/operations/tasks/{task}/", OperationRead, s.showTask),
		{method: http.MethodGet, path: apiRoot + "/operations/tasks/{task}/events/", scope: OperationRead, stream: s.followTask},
		post("/operations/tasks/{task}/cancel/", OperationWrite, s.cancelTask),
		get("/operation-rules/", RuleRead, s.listRules),
		post("/operation-rules/", RuleWrite, s.createRule),
		post("/operation-rules/import/", RuleWrite, s.importRules),
		post("/operation-rules/validate/", RuleRead, s.validateRules),
		post("/operation-rules/plan/", RuleRead, s.planRule),
		get("/operation-rules/{rule}/", RuleRead, s.showRule),
		put("/operation-rules/{rule}/", RuleWrite, s.replaceRule),
		remove("/operation-rules/{rule}/", RuleWrite, s.deleteRule),
		post("/operation-rules/{rule}/set-default/", RuleWrite, s.setDefaultRule),
		get("/racks/{rack}/operation-rules/", RuleRead, s.listRackRules),
		put("/racks/{rack}/operation-rules/{operation}/", RuleWrite, s.associateRule),
		remove("/racks/{rack}/operation-rules/{operation}/", RuleWrite, s.disassociateRule),
		get("/racks/", DeviceRead, s.listRacks),
		get("/fleet/summary/", DeviceRead, s.showFleet),
		get("/sites/", DeviceRead, s.listSites),
		get("/sites/{site}/sources/", DeviceRead, s.listSources),
		get("/sites/{site}/sources/{source}/", DeviceRead, s.showSource),
		post("/sites/{site}/sources/{source}/confirm/", OperationWrite, s.confirmMissing),
		post("/sites/{site}/sources/bmc/allow-login/", OperationWrite, s.allowLogin),
		get("/policies/", PolicyRead, s.listPolicies),
		get("/policies/status/", PolicyRead, s.showPolicyStatus),
		get("/policies/{family}/", PolicyRead, s.showFamily),
		post("/policies/evaluate/", PolicyRead, s.evaluate),
		{method: http.MethodGet, path: documentPath, public: true, plain: s.serveDocument},
		{method: http.MethodGet, path: "/healthz", public: true, plain: s.healthy},
		{method: http.MethodGet, path: "/readyz", public: true, plain: s.ready},
		{method: http.MethodGet, path: "/metrics", scope: MetricsRead, local: true, plain: s.serveMetrics},
		{method: http.MethodGet, path: "/", public: true, plain: s.index},
		{method: http.MethodGet, path: pageRoot + "/", scope: DeviceRead, page: s.fleetPage},
		{method: http.MethodGet, path: pageRoot + "/devices/", scope: DeviceRead, page: s.devicesPage},
		{method: http.MethodGet, path: pageRoot + "/devices/{id}/", scope: DeviceRead, page: s.devicePageOf},
		{method: http.MethodGet, path: pageRoot + "/jobs/", scope: JobRead, page: s.jobsPage},
		{method: http.MethodGet, path: pageRoot + "/jobs/{job}/", scope: JobRead, page: s.jobPageOf},
		{method: http.MethodGet, path: pageRoot + "/jobs/{job}/events/", scope: JobRead, session: true, stream: s.followJob},
		{method: http.MethodPost, path: pageRoot + "/devices/{id}/jobs/", scope: JobWrite, form: s.submitFromPage, page: s.devicePageOf, reads: DeviceRead},
		{method: http.MethodPost, path: pageRoot + "/jobs/{job}/cancel/", scope: JobWrite, form: s.cancelFromPage, page: s.jobPageOf, reads: JobRead},
		{method: http.MethodGet, path: pageRoot + "/racks/", scope: DeviceRead, page: s.racksPage},
		{method: http.MethodGet, path: pageRoot + "/racks/{rack}/", scope: DeviceRead, page: s.rackPageOf},
		{method: http.MethodPost, path: pageRoot + "/racks/{rack}/operations/", scope: OperationWrite, form: s.operateFromPage, page: s.rackPageOf, reads: DeviceRead},
		{method: http.MethodGet, path: pageRoot + "/operations/", scope: OperationRead, page: s.tasksPage},
		{method: http.MethodGet, path: pageRoot + "/operations/tasks/{task}/", scope: OperationRead, page: s.taskPageOf},
		{method: http.MethodGet, path: pageRoot + "/operations/tasks/{task}/events/", scope: OperationRead, session: true, stream: s.followTaskFromPage},
		{method: http.MethodPost, path: pageRoot + "/operations/tasks/{task}/cancel/", scope: OperationWrite, form: s.cancelTaskFromPage, page: s.taskPageOf, reads: OperationRead},
		{method: http.MethodGet, path: pageRoot + "/operation-rules/", scope: RuleRead, page: s.rulesPage},
		{method: http.MethodGet, path: pageRoot + "/operation-rules/{rule}/", scope: RuleRead, page: s.rulePageOf},
		{method: http.MethodGet, path: pageRoot + "/operation-rules/built-in/{operation}/", scope: RuleRead, page: s.builtInRulePage},
		{method: http.MethodGet, path: stylePath, public: true, plain: s.pageFile},
		{method: http.MethodGet, path: scriptPath, public: true, plain: s.pageFile},
		{method: http.MethodGet, path: loginPath, public: true, plain: s.loginLink},
		{method: http.MethodPost, path: loginPath, public: true, plain: s.login},
	}
}

func (s *Server) newRouter() (*mux.Router, error) {
	router := mux.NewRouter().SkipClean(true)
	var errs []error
	for _, one := range s.routes {
		if (one.scope == "") != one.public {
			errs = append(errs, fmt.Errorf("%s %s: a route is public or has a scope", one.method, one.path))
		}
		op, err := s.contract.operation(one.method, one.path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		methods := []string{one.method}
		if one.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		router.HandleFunc(one.path, s.serve(one, op)).Methods(methods...).Name(one.method + " " + one.path)
	}
	router.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, trailOf(r), refuse(http.StatusNotFound, "route_not_found", "there is nothing at this address: %s lists what there is", documentPath))
	})
	router.MethodNotAllowedHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed := strings.Join(s.allowed(r), ", ")
		s.fail(w, r, trailOf(r), refuse(http.StatusMethodNotAllowed, "method_not_allowed", "this address takes %s", allowed).set("Allow", allowed))
	})
	return router, errors.Join(errs...)
}

// allowed lists the methods that an address takes.
func (s *Server) allowed(r *http.Request) []string {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := *r
		other.Method = method
		var match mux.RouteMatch
		if s.router.Match(&other, &match) && match.MatchErr == nil && !slices.Contains(methods, method) {
			methods = append(methods, method)
		}
	}
	return methods
}

// serve is the way of a request through one operation: who asks, whether they
// may, whether it is well formed, the answer.
func (s *Server) serve(one route, op *operation) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t := trailOf(r)
		t.route = one.path
		principal, err := s.admit(r, one)
		t.principal = principal.Name
		if err != nil {
			s.turnAway(w, r, one, err)
			return
		}
		if one.plain != nil {
			one.plain(w, r)
			return
		}
		in := &request{Request: r, principal: principal, vars: mux.Vars(r)}
		if one.form != nil {
			if err := s.readForm(in); err != nil {
				s.turnAway(w, r, one, err)
				return
			}
		}
		if err := s.contract.check(in, op); err != nil {
			s.turnAway(w, r, one, err)
			return
		}
		if err := s.respond(w, in, one); err != nil {
			s.turnAway(w, r, one, err)
		}
	}
}

func (s *Server) respond(w http.ResponseWriter, r *request, one route) error {
	if one.stream != nil {
		return one.stream(w, r)
	}
	if one.form != nil {
		return s.follow(w, r, one)
	}
	if one.page != nil {
		name, data, err := one.page(r)
		if err != nil {
			return err
		}
		return s.pages.write(w, http.StatusOK, name, data)
	}
	answer, err := one.answer(r)
	if err != nil {
		return err
	}
	return answer.write(w, r.Request)
}

// turnAway answers with a problem: people get it as a page.
func (s *Server) turnAway(w http.ResponseWriter, r *http.Request, one route, err error) {
	if one.page == nil {
		s.fail(w, r, trailOf(r), err)
		return
	}
	s.failPage(w, r, err)
}

// admit tells who asks, and refuses who may not. It comes before anything that
// depends on what exists.
func (s *Server) admit(r *http.Request, one route) (Principal, error) {
	if one.public || one.local && local(r) && bearer(r) == "" {
		return Principal{}, nil
	}
	principal, err := s.authenticate(r, one.page != nil || one.session)
	if err != nil {
		return Principal{}, err
	}
	if wait, ok := s.limiter.take(principal.Name); !ok {
		return principal, tooMany(wait)
	}
	if !principal.May(one.scope) {
		return principal, refuse(http.StatusForbidden, "scope_missing", "this needs a token with the scope %s", one.scope)
	}
	return principal, nil
}
