package redfish

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

var (
	systemResets = []string{"On", "ForceOff", "ForceOn", "ForceRestart", "GracefulRestart", "GracefulShutdown", "PowerCycle", "Nmi"}
	shelfResets  = []string{"On", "ForceOff", "PowerCycle"}
)

// managerRestart is how long a BMC that restarts is not ready.
const managerRestart = 20 * time.Second

// actionInfo is the resource that says what a reset of a name takes.
func actionInfo(owner, name string, values []string) *resource {
	return fixed(object{
		"@odata.id": owner + "/" + name + "ActionInfo", "@odata.type": "#ActionInfo.v1_4_0.ActionInfo", "Id": name + "ActionInfo", "Name": name + " Action Info",
		"Parameters": []any{object{"Name": "ResetType", "DataType": "String", "Required": true, "AllowableValues": anys(values)}},
	})
}

func anys(words []string) []any {
	list := make([]any, len(words))
	for i := range words {
		list[i] = words[i]
	}
	return list
}

// resetAction is how a resource tells of its reset: what it takes is told in an
// ActionInfo, by a lenient BMC in the action itself.
func (v *view) resetAction(name, owner string, values []string) object {
	a := object{"target": owner + "/Actions/" + name}
	if v.lenient() {
		a["ResetType@Redfish.AllowableValues"] = anys(values)
	} else {
		_, action, _ := strings.Cut(name, ".")
		a["@Redfish.ActionInfo"] = owner + "/" + action + "ActionInfo"
	}
	return a
}

// addReset gives a resource an action that resets the machine.
func addReset(md *model, owner, name string, values []string) {
	md.resources[owner+"/ResetActionInfo"] = actionInfo(owner, "Reset", values)
	md.actions[owner+"/Actions/"+name] = &action{owner: owner, name: name, run: func(v *view, body object) *answer {
		kind, refused := v.resetType(name, body, values)
		if refused != nil {
			return refused
		}
		return v.reset(kind)
	}}
}

// resetType checks the parameters of a reset.
func (v *view) resetType(action string, body object, values []string) (string, *answer) {
	for _, name := range slices.Sorted(maps.Keys(body)) {
		if name != "ResetType" && !v.lenient() {
			return "", refuseAt("ActionParameterUnknown", name, action, name)
		}
	}
	value, given := body["ResetType"]
	kind, isText := value.(string)
	switch {
	case !given:
		return "", refuse("ActionParameterMissing", action, "ResetType")
	case !isText:
		return "", refuseAt("ActionParameterValueTypeError", "ResetType", fmt.Sprint(value), "ResetType", action)
	case !slices.Contains(values, kind):
		return "", refuseAt("ActionParameterValueNotInList", "ResetType", kind, "ResetType", action)
	}
	return kind, nil
}

// reset does to the machine's power what a reset asks for.
func (v *view) reset(kind string) *answer {
	done := &answer{status: http.StatusNoContent}
	already := ""
	err := v.do("reset "+kind, func(s *world.State, m *world.Machine) error {
		off := len(m.Moves) > 0 && !m.Moves[len(m.Moves)-1].On // an Off is under way
		moves, there := movesOf(kind, m, off)
		switch {
		case m.BMC.Deaf, off && moves != nil && moves[0] && v.f.options.SwallowOn:
			return nil // accepted without effect
		case there:
			already = powerWord(m.On)
			return errUnchanged
		case kind == "Nmi":
			return nil
		}
		s.Switch(m, "reset "+kind, moves...)
		return nil
	})
	if err != nil {
		return failed(err)
	}
	if already != "" {
		return v.alreadyThere(already)
	}
	return done
}

// movesOf gives what a reset makes of the power, or that it is there already.
func movesOf(kind string, m *world.Machine, offUnderWay bool) (moves []bool, there bool) {
	on := m.On && !offUnderWay || len(m.Moves) > 0 && m.Moves[len(m.Moves)-1].On
	switch kind {
	case "On", "ForceOn":
		return []bool{true}, on
	case "ForceOff", "GracefulShutdown":
		return []bool{false}, !on
	case "ForceRestart", "GracefulRestart", "PowerCycle":
		if m.On {
			return []bool{false, true}, false
		}
		return []bool{true}, false
	}
	return nil, false
}

// alreadyThere answers a reset whose effect is there.
func (v *view) alreadyThere(power string) *answer {
	switch v.f.options.Already {
	case http.StatusBadRequest:
		return refuse("InvalidOperationForSystemState", power)
	case http.StatusConflict:
		conflict := refuse("InvalidOperationForSystemState", power)
		conflict.status = http.StatusConflict
		return conflict
	}
	return &answer{status: http.StatusNoContent}
}

// resetManager restarts the BMC: its sessions end, and it is not ready for a
// while. The machine runs on.
func (v *view) resetManager(body object) *answer {
	kind, refused := v.resetType("Manager.Reset", body, managerResets)
	if refused != nil {
		return refused
	}
	if err := v.do("reset BMC "+kind, func(s *world.State, m *world.Machine) error {
		m.BMC.Reset, m.BMC.NotReady = s.Now, s.Now.Add(managerRestart)
		s.Machines.Put(m.Key(), m)
		return nil
	}); err != nil {
		return failed(err)
	}
	v.bmc.forget(false)
	return &answer{status: http.StatusNoContent}
}

// resetToDefaults sets the BMC to what it came with, and restarts it.
func (v *view) resetToDefaults(body object) *answer {
	kind, refused := v.resetType("Manager.ResetToDefaults", body, managerDefaults)
	if refused != nil {
		return refused
	}
	if err := v.do("reset BMC to defaults "+kind, func(s *world.State, m *world.Machine) error {
		s.ResetBMC(m)
		s.EditBMC(m, func(b *world.BMC) { b.Reset, b.NotReady = s.Now, s.Now.Add(managerRestart) })
		return nil
	}); err != nil {
		return failed(err)
	}
	v.bmc.forget(true)
	return &answer{status: http.StatusNoContent}
}

// forget ends all sessions, and removes the accounts that somebody made.
func (b *memory) forget(accounts bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions = nil
	if accounts {
		clear(b.accounts)
	}
}

var (
	bootTargets = []string{"None", "Pxe", "Hdd", "Cd", "Diags", "BiosSetup", "Usb"}
	bootEnabled = []string{"Disabled", "Once", "Continuous"}
	bootModes   = []string{"UEFI"}
	ledWords    = []string{"Off", "Lit", "Blinking"}
)

// boot is the part of a System that tells of the next boot.
func (v *view) boot() object {
	enabled, target := "Disabled", "None"
	if v.m.Boot != "" {
		enabled, target = "Once", v.m.Boot
		if v.m.BootStays {
			enabled = "Continuous"
		}
	}
	return object{
		"BootSourceOverrideEnabled": enabled, "BootSourceOverrideEnabled@Redfish.AllowableValues": anys(bootEnabled),
		"BootSourceOverrideTarget": target, "BootSourceOverrideTarget@Redfish.AllowableValues": anys(bootTargets),
		"BootSourceOverrideMode": "UEFI", "BootSourceOverrideMode@Redfish.AllowableValues": anys(bootModes),
	}
}

// changeSystem changes what can be changed of a System.
func (v *view) changeSystem(body object) *answer {
	var ignored []object
	err := v.do("change system", func(s *world.State, m *world.Machine) (err error) {
		var refused *answer
		ignored, refused = apply(body, map[string]setter{
			"AssetTag": text(&m.AssetTag), "IndicatorLED": oneOf(&m.LED, ledWords...),
			"Boot": func(value any) (string, bool) { return v.setBoot(m, value) },
		}, v.lenient())
		if refused != nil {
			return &refusal{refused}
		}
		s.Machines.Put(m.Key(), m)
		return nil
	})
	if err != nil {
		return failed(err)
	}
	return v.changed(v.find(systemPath).render(v), ignored)
}

// setBoot takes a boot override.
func (v *view) setBoot(m *world.Machine, value any) (problem string, ok bool) {
	sent, ok := value.(object)
	if !ok {
		return "PropertyValueTypeError", false
	}
	target, enabled, mode := m.Boot, "", ""
	setters := map[string]setter{
		"BootSourceOverrideTarget": oneOf(&target, bootTargets...), "BootSourceOverrideEnabled": oneOf(&enabled, bootEnabled...),
		"BootSourceOverrideMode": oneOf(&mode, bootModes...),
	}
	for name, inner := range sent {
		set := setters[name]
		if set == nil && v.lenient() {
			continue
		}
		if set == nil {
			return "PropertyUnknown", false
		}
		if problem, ok := set(inner); !ok {
			return problem, false
		}
	}
	switch {
	case enabled == "Disabled" || target == "None":
		m.Boot, m.BootStays = "", false
	default:
		m.Boot = target
		if enabled != "" {
			m.BootStays = enabled == "Continuous"
		}
	}
	return "", true
}

// changeChassis changes what can be changed of the tray's chassis.
func (v *view) changeChassis(path string, body object) *answer {
	var ignored []object
	err := v.do("change chassis", func(s *world.State, m *world.Machine) error {
		var refused *answer
		ignored, refused = apply(body, map[string]setter{"AssetTag": text(&m.AssetTag), "IndicatorLED": oneOf(&m.LED, ledWords...)}, v.lenient())
		if refused != nil {
			return &refusal{refused}
		}
		s.Machines.Put(m.Key(), m)
		return nil
	})
	if err != nil {
		return failed(err)
	}
	return v.changed(v.find(path).render(v), ignored)
}
