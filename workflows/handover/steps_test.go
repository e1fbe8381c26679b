package handover

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/sources/nova"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/act/acttest"
)

// step is one activity on a machine as it is found.
type stepCase struct {
	act   string
	found []func(*plant)
	rows  string // SQL on the device, $1
	in    string // instance
	nova  bool
	late  bool // the clock is far beyond every bound

	did   []string
	code  codes.Failure
	again bool // trying again may help
}

func in(state facts.ProvisionState) func(*plant) {
	return func(p *plant) { p.f.ProvisionState = state }
}

// way has the node on its way from a state to another.
func way(state, to facts.ProvisionState) func(*plant) {
	return func(p *plant) { p.f.ProvisionState, p.f.TargetProvisionState = state, facts.TextOf(to.String()) }
}

func fails(call string, kind sources.Kind) func(*plant) {
	return func(p *plant) { p.broken[call] = &sources.Error{Kind: kind, Op: call, Message: "because"} }
}

func maintained(reason string) func(*plant) {
	return func(p *plant) { p.f.Maintenance, p.f.MaintenanceReason = facts.True, facts.TextOf(reason) }
}

func leased(to string) func(*plant) { return func(p *plant) { p.f.Lessee = facts.TextOf(to) } }

func unleased(p *plant) { p.f.Lessee = facts.Text{} }

// boundFree has an instance of ours bound to an idle node.
func boundFree(p *plant) {
	p.f.InstanceUUID, p.mark = facts.TextOf(tested), ironic.Mark("3", tested)
}

func server(s nova.Server) func(*plant) { return func(p *plant) { p.servers[s.ID] = s } }

// inSlurmAs has the node in SLURM, drained by somebody or (“”) not.
func inSlurmAs(states facts.SlurmStates, by string) func(*plant) {
	return func(p *plant) {
		p.inSlurm, p.states, p.drainer = true, states, by
		if by != "" {
			p.states |= facts.SlurmDrain
		}
	}
}

const (
	unproven  = "update devices set enrollment_validated_ref = '' where id = $1"
	elsewhere = "update devices set infrastructure_ref = 'other', enrollment_validated_ref = 'other' where id = $1"
	delegated = "update devices set operational_status = 'delegated' where id = $1"
	nodeless  = "update devices set infrastructure_ref = '' where id = $1"
)

// Whatever a step finds, also what an earlier try of itself left, it does what is
// missing and nothing else, and says what keeps it.
func TestWhatAStepDoes(t *testing.T) {
	ours := func(more ...func(*plant)) []func(*plant) { return append([]func(*plant){inCluster}, more...) }
	theirs := func(more ...func(*plant)) []func(*plant) {
		return append([]func(*plant){occupiedBy(customers, "customer", "customer")}, more...)
	}
	is := func(all ...func(*plant)) []func(*plant) { return all }
	free := func(p *plant) { p.f.Traits = nil }
	named := func(node, status string) nova.Server {
		return nova.Server{ID: tested, Project: "slurm", Node: node, Status: status}
	}
	unexpected := codes.IronicStateUnexpected
	for site, of := range map[string]struct {
		spec  fleet.SiteSpec
		cases map[string]stepCase
	}{
		"direct": {direct(), map[string]stepCase{
			"cordon":                                          {act: actCordon, did: []string{"trait off"}},
			"cordon: done before":                             {act: actCordon, found: is(free)},
			"cordon: a customer is on it":                     {act: actCordon, found: theirs(), did: []string{"trait off"}},
			"cordon: Ironic refuses":                          {act: actCordon, found: is(fails("remove trait", sources.KindForbidden)), code: codes.CustomerTraitNotRemoved},
			"cordon: Ironic is away":                          {act: actCordon, found: is(fails("remove trait", sources.KindTransient)), code: codes.IronicUnavailable, again: true},
			"cordon: a partner's":                             {act: actCordon, rows: delegated, code: codes.CustodyChanged},
			"cordon: no node":                                 {act: actCordon, rows: nodeless, code: unexpected},
			"reclaim":                                         {act: actReclaim, found: theirs(), in: customers, did: []string{"provision deleted"}},
			"reclaim: another instance":                       {act: actReclaim, found: theirs(), in: tested, code: codes.ReclaimInstanceChanged},
			"reclaim: one, and none was approved":             {act: actReclaim, found: theirs(), code: codes.ReclaimInstanceChanged},
			"reclaim: none, as was approved":                  {act: actReclaim},
			"reclaim: none, and not available":                {act: actReclaim, found: is(in(facts.ProvisionStateManageable)), code: unexpected},
			"reclaim: gone by now":                            {act: actReclaim, found: is(way(facts.ProvisionStateCleaning, facts.ProvisionStateAvailable)), in: customers},
			"reclaim: being deleted":                          {act: actReclaim, found: theirs(way(facts.ProvisionStateDeleting, facts.ProvisionStateAvailable)), in: customers},
			"reclaim: another customer's since it was looked": {act: actReclaim, found: theirs(func(p *plant) { p.looked = func() { p.f.InstanceUUID = facts.TextOf(tested) } }), in: customers, code: codes.InstanceDeleteFailed},
			"reclaim: being deployed":                         {act: actReclaim, found: theirs(way(facts.ProvisionStateDeploying, facts.ProvisionStateActive)), in: customers, code: unexpected},
			"reclaim: unproven":                               {act: actReclaim, found: theirs(), rows: unproven, in: customers, code: codes.EnrollmentProofMissing},
			"reclaim: another node is proven":                 {act: actReclaim, found: theirs(), rows: elsewhere, in: customers, code: codes.EnrollmentProofMissing},
			"reclaim: a partner's by now":                     {act: actReclaim, found: theirs(), rows: delegated, in: customers, code: codes.CustodyChanged},
			"reclaim: Ironic refuses":                         {act: actReclaim, found: theirs(fails("provision", sources.KindConflict)), in: customers, code: codes.InstanceDeleteFailed},
			"settle":                                          {act: actSettle},
			"settle: ours":                                    {act: actSettle, found: ours()},
			"settle: ours, being deployed":                    {act: actSettle, found: ours(way(facts.ProvisionStateWaitCallback, facts.ProvisionStateActive))},
			"settle: ours, not deployed":                      {act: actSettle, found: ours(in(facts.ProvisionStateDeployFailed)), code: codes.IronicDeployFailed},
			"settle: ours, lost":                              {act: actSettle, found: ours(in(facts.ProvisionStateError)), code: unexpected},
			"settle: a customer's":                            {act: actSettle, found: theirs(), code: codes.InstanceNotOurs},
			"settle: in enroll":                               {act: actSettle, found: is(in(facts.ProvisionStateEnroll)), code: unexpected},
			"settle: in error":                                {act: actSettle, found: is(in(facts.ProvisionStateError)), code: unexpected},
			"settle: never at rest":                           {act: actSettle, found: is(way(facts.ProvisionStateCleaning, facts.ProvisionStateAvailable)), late: true, code: unexpected},
			"settle: Ironic is away":                          {act: actSettle, found: is(fails("get", sources.KindTransient)), late: true, code: codes.IronicUnavailable},
			"settle: whose is unread":                         {act: actSettle, found: theirs(unleased), late: true, code: codes.IronicUnavailable},
			"lease":                                           {act: actLease, did: []string{"lease slurm"}},
			"lease: done before":                              {act: actLease, found: is(leased("slurm"))},
			"lease: of one that is ours already":              {act: actLease, found: ours(leased("enrol")), did: []string{"lease slurm"}},
			"lease: not clean":                                {act: actLease, found: is(cleanFailed), did: []string{"lease slurm"}},
			"deploy: not clean":                               {act: actDeploy, found: is(cleanFailed), in: tested, code: unexpected},
			"lease: a customer's by now":                      {act: actLease, found: theirs(), code: codes.InstanceNotOurs},
			"lease: an operator's maintenance":                {act: actLease, found: is(maintained("bad fan")), code: codes.MaintenanceForeign},
			"lease: maintenance of ours":                      {act: actLease, found: is(maintained("muster:3 to be deleted")), did: []string{"maintenance off", "lease slurm"}},
			"lease: unproven":                                 {act: actLease, rows: unproven, code: codes.EnrollmentProofMissing},
			"lease: no leases":                                {act: actLease, found: is(unleased), code: codes.LeaseNotSet},
			"lease: Ironic refuses":                           {act: actLease, found: is(fails("lease", sources.KindConflict)), code: codes.LeaseNotSet},
			"lease: Ironic is away":                           {act: actLease, found: is(fails("lease", sources.KindTransient)), code: codes.IronicUnavailable, again: true},
			"deploy":                                          {act: actDeploy, in: customers, found: is(leased("slurm")), did: []string{"bind", "deploy"}},
			"deploy: given to customers by now":               {act: actDeploy, in: tested, found: is(leased("")), code: codes.IronicDeployFailed},
			"deploy: bound by an earlier job":                 {act: actDeploy, in: customers, found: is(boundFree), did: []string{"deploy"}},
			"deploy: deployed before":                         {act: actDeploy, in: customers, found: ours()},
			"deploy: on the way":                              {act: actDeploy, in: customers, found: ours(way(facts.ProvisionStateDeploying, facts.ProvisionStateActive))},
			"deploy: failed before":                           {act: actDeploy, in: customers, found: ours(in(facts.ProvisionStateDeployFailed)), code: codes.IronicDeployFailed},
			"deploy: a customer's by now":                     {act: actDeploy, in: tested, found: theirs(), code: codes.InstanceNotOurs},
			"deploy: on its way elsewhere":                    {act: actDeploy, in: tested, found: is(way(facts.ProvisionStateCleaning, facts.ProvisionStateAvailable)), code: unexpected, again: true},
			"deploy: unproven":                                {act: actDeploy, in: tested, rows: unproven, code: codes.EnrollmentProofMissing},
			"deploy: Ironic refuses the image":                {act: actDeploy, in: tested, found: is(leased("slurm"), fails("deploy", sources.KindRefused)), did: []string{"bind"}, code: codes.IronicDeployFailed},
			"deploy: an idle node that another bound":         {act: actDeploy, in: customers, found: is(boundFree, leased("slurm"), func(p *plant) { p.mark = "" }), code: codes.InstanceNotOurs},
			"await deploy":                                    {act: actAwaitDeploy, in: tested, found: ours()},
			"await deploy: failed":                            {act: actAwaitDeploy, in: tested, found: ours(in(facts.ProvisionStateDeployFailed)), code: codes.IronicDeployFailed},
			"await deploy: taken off":                         {act: actAwaitDeploy, in: tested, code: unexpected},
			"await deploy: another's":                         {act: actAwaitDeploy, in: tested, found: theirs(), code: codes.InstanceNotOurs},
			"await deploy: never ends":                        {act: actAwaitDeploy, in: tested, found: ours(way(facts.ProvisionStateWaitCallback, facts.ProvisionStateActive)), late: true, code: codes.IronicDeployFailed},
			"register":                                        {act: actRegister, did: []string{"create in slurm"}},
			"register: in service":                            {act: actRegister, found: ours()},
			"register: our drain":                             {act: actRegister, found: is(inSlurmAs(facts.SlurmIdle, "muster:3")), did: []string{"resume"}},
			"register: silent at first":                       {act: actRegister, found: is(inSlurmAs(facts.SlurmDown|facts.SlurmNotResponding, "muster:3"), func(p *plant) { p.silent = 2 }), did: []string{"resume"}},
			"register: an operator's drain":                   {act: actRegister, found: is(inSlurmAs(facts.SlurmIdle, "root")), code: codes.SlurmRegisterFailed},
			"register: stays down":                            {act: actRegister, found: is(inSlurmAs(facts.SlurmDown, "")), late: true, code: codes.SlurmRegisterFailed},
			"register: SLURM is away":                         {act: actRegister, found: is(fails("get slurm", sources.KindTransient)), late: true, code: codes.SlurmUnavailable},
			"register: no right to":                           {act: actRegister, found: is(fails("register", sources.KindForbidden)), code: codes.SlurmUnavailable},
			"register: it cannot":                             {act: actRegister, found: is(fails("register", sources.KindRefused)), code: codes.SlurmRegisterFailed},
			"look":                                            {act: actLook},
			"look: ours":                                      {act: actLook, found: ours()},
			"look: a customer's":                              {act: actLook, found: theirs()},
			"look: a customer's that SLURM uses":              {act: actLook, found: theirs(inSlurmAs(facts.SlurmIdle, "")), code: codes.InstanceNotOurs},
			"look: a customer's, work still ends on it":       {act: actLook, found: theirs(inSlurmAs(facts.SlurmAllocated, "root")), code: codes.InstanceNotOurs},
			"look: a customer's, drained in SLURM":            {act: actLook, found: theirs(inSlurmAs(facts.SlurmIdle, "root"))},
			"look: a customer's, down in SLURM":               {act: actLook, found: theirs(inSlurmAs(facts.SlurmDown|facts.SlurmNotResponding, ""))},
			"look: a customer's, SLURM is away":               {act: actLook, found: theirs(fails("get slurm", sources.KindTransient)), code: codes.SlurmUnavailable, again: true},
			"look: SLURM's, and not of our making":            {act: actLook, found: ours(func(p *plant) { p.mark = "" }), code: codes.InstanceNotOurs},
			"look: a partner's":                               {act: actLook, rows: delegated, code: codes.ReleaseHoldRefused},
			"look: no node":                                   {act: actLook, rows: nodeless},
			"drain":                                           {act: actDrain, found: ours(), did: []string{"drain"}},
			"drain: never in SLURM":                           {act: actDrain},
			"drain: by an earlier job":                        {act: actDrain, found: is(inSlurmAs(facts.SlurmIdle, "muster:3"))},
			"drain: an operator's":                            {act: actDrain, found: is(inSlurmAs(facts.SlurmIdle, "root")), code: codes.SlurmDrainForeign},
			"drain: work that never ends":                     {act: actDrain, found: ours(func(p *plant) { p.jobs = 1 << 20 }), late: true, did: []string{"drain"}, code: codes.SlurmDrainTimeout},
			"drain: it cannot":                                {act: actDrain, found: ours(fails("remove", sources.KindRefused)), code: codes.SlurmRemoveFailed},
			"drain: SLURM is away":                            {act: actDrain, found: ours(fails("remove", sources.KindTransient)), late: true, code: codes.SlurmUnavailable},
			"undrain":                                         {act: actUndrain, found: is(inSlurmAs(facts.SlurmAllocated, "muster:7")), did: []string{"undrain"}},
			"undrain: not drained":                            {act: actUndrain, found: ours()},
			"undrain: of an earlier job":                      {act: actUndrain, found: is(inSlurmAs(facts.SlurmAllocated, "muster:3"))},
			"undrain: an operator's":                          {act: actUndrain, found: is(inSlurmAs(facts.SlurmAllocated, "root"))},
			"undrain: not in SLURM":                           {act: actUndrain},
			"undrain: SLURM is away":                          {act: actUndrain, found: ours(fails("resume", sources.KindTransient)), code: codes.SlurmUnavailable, again: true},
			"instance":                                        {act: actRemove, in: tested, found: ours(), did: []string{"provision deleted"}},
			"instance: one that was not deployed":             {act: actRemove, in: tested, found: ours(in(facts.ProvisionStateDeployFailed)), did: []string{"provision deleted"}},
			"instance: bound and never deployed":              {act: actRemove, in: tested, found: is(boundFree)},
			"instance: gone by now":                           {act: actRemove, in: tested},
			"instance: being deleted":                         {act: actRemove, in: tested, found: ours(way(facts.ProvisionStateDeleting, facts.ProvisionStateAvailable))},
			"instance: a customer's since it was looked":      {act: actRemove, in: tested, found: ours(func(p *plant) { p.looked = func() { p.f.InstanceUUID = facts.TextOf(customers) } }), code: codes.InstanceDeleteFailed},
			"instance: in rescue":                             {act: actRemove, in: tested, found: ours(in(facts.ProvisionStateRescue)), code: unexpected},
			"instance: a customer's by now":                   {act: actRemove, in: tested, found: theirs(), code: codes.InstanceNotOurs},
			"instance: another of ours by now":                {act: actRemove, in: customers, found: ours(), code: codes.InstanceNotOurs},
			"gone":                                            {act: actAwaitGone, in: tested},
			"gone: never was there, in any state":             {act: actAwaitGone, found: is(in(facts.ProvisionStateManageable))},
			"gone: bound and never deployed":                  {act: actAwaitGone, in: tested, found: is(boundFree)},
			"gone: the clean fails":                           {act: actAwaitGone, in: tested, found: is(in(facts.ProvisionStateCleanFailed)), code: codes.IronicCleanFailed},
			"gone: the tear-down fails":                       {act: actAwaitGone, in: tested, found: ours(in(facts.ProvisionStateError)), code: codes.InstanceDeleteFailed},
			"gone: nothing begins":                            {act: actAwaitGone, in: tested, found: ours(), late: true, code: codes.InstanceDeleteFailed},
			"gone: never ends":                                {act: actAwaitGone, in: tested, found: is(way(facts.ProvisionStateCleaning, facts.ProvisionStateAvailable)), late: true, code: codes.InstanceDeleteFailed},
			"gone: somewhere else":                            {act: actAwaitGone, in: tested, found: is(in(facts.ProvisionStateManageable)), code: unexpected},
			"gone: a customer's by now":                       {act: actAwaitGone, in: tested, found: theirs(), code: codes.InstanceNotOurs},
			"unbind: the mark":                                {act: actUnbind, in: tested, found: is(func(p *plant) { p.mark = ironic.Mark("3", tested) }), did: []string{"unbind"}},
			"unbind: nothing":                                 {act: actUnbind},
			"unbind: never was there, in another state":       {act: actUnbind, found: is(in(facts.ProvisionStateManageable))},
			"unbind: a customer's by now":                     {act: actUnbind, in: tested, found: theirs(in(facts.ProvisionStateAvailable)), code: codes.InstanceDeleteFailed},
			"return":                                          {act: actReturn, found: is(leased("slurm")), did: []string{"lease enrol"}},
			"return: done before":                             {act: actReturn},
			"return: a customer's lease":                      {act: actReturn, found: is(leased("customer"))},
			"return: the lease is unread":                     {act: actReturn, found: is(unleased), code: codes.IronicUnavailable, again: true},
			"return: an instance is on it":                    {act: actReturn, found: ours(), code: codes.InstanceNotOurs},
			"return: Ironic refuses":                          {act: actReturn, found: is(leased("slurm"), fails("lease", sources.KindForbidden)), code: codes.LeaseNotSet},
		}},
		"nova": {direct(throughNova), map[string]stepCase{
			"reclaim":                               {act: actReclaim, found: theirs(), in: customers, did: []string{"delete server"}},
			"reclaim: Nova refuses":                 {act: actReclaim, found: theirs(fails("delete server", sources.KindConflict)), in: customers, code: codes.InstanceDeleteFailed},
			"reclaim: Nova is away":                 {act: actReclaim, found: theirs(fails("delete server", sources.KindTransient)), in: customers, code: codes.NovaUnavailable, again: true},
			"deploy":                                {act: actDeploy, in: customers, did: []string{"create server"}},
			"deploy: bound before":                  {act: actDeploy, in: customers, found: ours()},
			"deploy: a customer's server came late": {act: actDeploy, in: tested, found: is(occupiedBy(customers, "slurm", "customer")), code: codes.InstanceNotOurs},
			"deploy: bound to what Nova lacks":      {act: actDeploy, in: customers, found: ours(func(p *plant) { p.mark = ""; delete(p.servers, tested) }), code: codes.ImageServerFailed},
			"deploy: ours of before Nova":           {act: actDeploy, in: customers, found: ours(func(p *plant) { delete(p.servers, tested) })},
			"await deploy: a customer's came first": {act: actAwaitDeploy, nova: true, in: tested, found: is(occupiedBy(customers, "slurm", "customer"), server(named("", "BUILD"))), code: codes.InstanceNotOurs},
			"await deploy: another project's":       {act: actAwaitDeploy, nova: true, in: customers, found: is(occupiedBy(customers, "slurm", "customer")), code: codes.InstanceNotOurs},
			"deploy: Nova is away":                  {act: actDeploy, found: is(fails("create server", sources.KindTransient)), code: codes.NovaUnavailable, again: true},
			"deploy: Nova refuses":                  {act: actDeploy, found: is(fails("create server", sources.KindRefused)), code: codes.ImageServerRefused},
			"deploy: no right to":                   {act: actDeploy, found: is(fails("servers", sources.KindForbidden)), code: codes.NovaUnavailable},
			"await deploy":                          {act: actAwaitDeploy, nova: true, in: tested, found: ours()},
			"await deploy: built, and switched off": {act: actAwaitDeploy, nova: true, in: tested, found: ours(server(named("", "SHUTOFF")))},
			"await deploy: the server fails":        {act: actAwaitDeploy, nova: true, in: tested, found: ours(server(named("", "ERROR"))), code: codes.ImageServerFailed},
			"await deploy: the server is gone":      {act: actAwaitDeploy, nova: true, in: tested, code: codes.ImageServerFailed},
			"await deploy: never begins":            {act: actAwaitDeploy, nova: true, in: tested, found: is(server(named("", "BUILD"))), late: true, code: codes.IronicDeployFailed},
			"instance":                              {act: actRemove, in: tested, found: ours(), did: []string{"delete server"}},
			"instance: of another project":          {act: actRemove, in: tested, found: ours(server(nova.Server{ID: tested, Project: "customer"})), code: codes.InstanceNotOurs},
			"instance: that Nova does not have":     {act: actRemove, in: tested, found: ours(func(p *plant) { p.mark = ""; delete(p.servers, tested) }), code: codes.InstanceDeleteFailed},
			"instance: of before there was a Nova":  {act: actRemove, in: tested, found: ours(func(p *plant) { delete(p.servers, tested) }), did: []string{"provision deleted"}},
			"look: of another project":              {act: actLook, found: ours(server(nova.Server{ID: tested, Project: "customer"})), code: codes.InstanceNotOurs},
			"gone: Nova still has it":               {act: actAwaitGone, nova: true, in: tested, found: is(server(nova.Server{ID: tested, Status: "ACTIVE", TaskState: "deleting"})), late: true, code: codes.InstanceDeleteFailed},
			"gone: Nova fails":                      {act: actAwaitGone, nova: true, in: tested, found: is(server(nova.Server{ID: tested, Status: "ERROR"})), code: codes.InstanceDeleteFailed},
		}},
		"no image": {direct(func(s *fleet.SiteSpec) { s.Imaging = nil }), map[string]stepCase{
			"deploy":                  {act: actDeploy, in: tested, code: codes.IronicDeployFailed},
			"deploy: deployed before": {act: actDeploy, in: customers, found: ours()},
		}},
		"no image for Nova": {direct(throughNova, func(s *fleet.SiteSpec) { s.Imaging.Nova = nil }), map[string]stepCase{
			"deploy": {act: actDeploy, in: tested, code: codes.ImageServerRefused},
		}},
		"no force": {direct(func(s *fleet.SiteSpec) { s.ForceReclaimEnabled = false }), map[string]stepCase{
			"reclaim": {act: actReclaim, found: theirs(), in: customers, code: codes.ForceReclaimNotEnabled},
		}},
		"legacy": {direct(legacy), map[string]stepCase{
			"cordon":                     {act: actCordon},
			"reclaim":                    {act: actReclaim, found: theirs(), in: customers, code: codes.ForceReclaimNotEnabled},
			"return":                     {act: actReturn, found: is(leased("slurm")), did: []string{"lease maintenance"}},
			"return: back before":        {act: actReturn, found: is(leased("maintenance"))},
			"hand off: from maintenance": {act: actHandOff, found: is(leased("maintenance")), did: []string{"lease "}},
			"hand off: from enrolment":   {act: actHandOff, found: is(leased("enrol")), did: []string{"lease "}},
			"hand off: done before":      {act: actHandOff, found: is(leased(""))},
			"hand off: SLURM's still":    {act: actHandOff, found: is(leased("slurm")), code: unexpected},
		}},
		"no SLURM": {direct(func(s *fleet.SiteSpec) { s.Sources.Slurm, s.Lessees.Slurm = nil, "" }), map[string]stepCase{
			"register": {act: actRegister},
			"drain":    {act: actDrain},
			"undrain":  {act: actUndrain},
			"lease":    {act: actLease},
			"return":   {act: actReturn},
		}},
		"metal without a project of SLURM": {direct(metal, func(s *fleet.SiteSpec) { s.Lessees.Slurm = "" }), map[string]stepCase{
			"look: SLURM uses an image of before muster": {act: actLook, found: ours(func(p *plant) { p.mark = "" }), code: codes.InstanceNotOurs},
		}},
		"metal": {direct(metal), map[string]stepCase{
			"return": {act: actReturn, found: is(leased("slurm")), did: []string{"lease enrol"}},
		}},
	} {
		t.Run(site, func(t *testing.T) {
			w := newWorld(t, of.spec)
			for name, c := range of.cases {
				t.Run(name, func(t *testing.T) { c.try(t, w) })
			}
		})
	}
}

// The proof is read again when all else is, right before an instance is deleted.
func TestAReclaimRestsOnTheProofOfThisInstant(t *testing.T) {
	w := newWorld(t, direct())
	m := w.machine(t, newPlant(occupiedBy(customers, "customer", "customer")))
	m.looked = func() { m.exec(t, unproven) }
	_, err := acttest.Run(&m.site, Family(), actReclaim, Instance{Node: Node{Job: 7, Device: m.device, Name: m.name, UUID: m.uuid}, Instance: customers})
	if act.Code(err) != codes.EnrollmentProofMissing || len(m.did) != 0 {
		t.Errorf("it did %q: %v", m.did, err)
	}
}

func (c stepCase) try(t *testing.T, w *world) {
	m := w.machine(t, newPlant(c.found...))
	for id, s := range m.servers { // they are this machine's
		if s.Node == theNode {
			s.Node = m.uuid
		}
		m.servers[id] = s
	}
	if c.rows != "" {
		m.exec(t, c.rows)
	}
	if c.late {
		m.site.Clock = func() time.Time { return time.Now().Add(30 * 24 * time.Hour) }
	}
	n := Node{Job: 7, Device: m.device, Name: m.name, UUID: m.uuid}
	var arg any = n
	switch c.act {
	case actCordon, actLook, actWithdraw:
		arg = act.Target{Job: 7, Device: m.device}
	case actReclaim, actDeploy, actAwaitDeploy, actRemove, actAwaitGone, actUnbind:
		arg = Instance{Node: n, Instance: c.in, Nova: c.nova}
	case actHandOff:
		arg = HandOff{Node: n}
	}
	_, err := acttest.Run(&m.site, Family(), c.act, arg)
	var coded *temporal.ApplicationError
	switch {
	case c.code == "" && err != nil:
		t.Error(err)
	case c.code != "" && (!errors.As(err, &coded) || coded.Type() != string(c.code) || coded.NonRetryable() == c.again):
		t.Errorf("%v, want %s", err, c.code)
	}
	if !slices.Equal(m.did, c.did) {
		t.Errorf("it did %q, want %q", m.did, c.did)
	}
}
