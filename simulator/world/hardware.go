package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Update is a firmware update under way.
type Update struct {
	Component string    `json:"component"`
	Version   string    `json:"version"`
	Task      string    `json:"task"`
	At        time.Time `json:"at"` // when it is done
	Fails     bool      `json:"fails"`
}

// Task is a task of a BMC: its update, under way or ended.
type Task struct {
	ID        string    `json:"id"`
	Component string    `json:"component"`
	Version   string    `json:"version"`
	Image     string    `json:"image"`
	State     string    `json:"state"`  // Running, Completed, Exception
	Status    string    `json:"status"` // OK, Critical
	Start     time.Time `json:"start"`
	End       time.Time `json:"end,omitzero"`
}

// The states of a task, as Redfish calls them.
const (
	TaskRunning   = "Running"
	TaskCompleted = "Completed"
	TaskException = "Exception"
)

const (
	// UpdateTime is how long a firmware update takes.
	UpdateTime = 20 * time.Second
	// tasksKept is how many tasks a BMC remembers.
	tasksKept = 8
)

// StartUpdate has a component updated to a version; the task's id is given.
// Another update must not be under way. It may be called inside Do only.
func (s *State) StartUpdate(m *Machine, component, version, image string) string {
	c := cloneMachine(m)
	next := 0
	for _, t := range c.Tasks {
		if n, err := strconv.Atoi(t.ID); err == nil && n >= next {
			next = n + 1
		}
	}
	id := strconv.Itoa(next)
	c.Update = &Update{Component: component, Version: version, Task: id, At: s.Now.Add(UpdateTime), Fails: c.BMC.BadImage}
	c.BMC.BadImage = false
	c.Tasks = append(c.Tasks, Task{ID: id, Component: component, Version: version, Image: image, State: TaskRunning, Status: "OK", Start: s.Now})
	if len(c.Tasks) > tasksKept {
		c.Tasks = slices.Clone(c.Tasks[len(c.Tasks)-tasksKept:])
	}
	s.Machines.Put(c.Key(), c)
	return id
}

// endUpdate lets the update that is under way end.
func (m *Machine) endUpdate(at time.Time) {
	u := m.Update
	m.Update = nil
	state, status := TaskCompleted, "OK"
	switch {
	case u.Fails:
		state, status = TaskException, "Critical"
	case !m.BMC.Keeps:
		m.Firmware[u.Component] = u.Version
	}
	for i := range m.Tasks {
		if m.Tasks[i].ID == u.Task {
			m.Tasks[i].State, m.Tasks[i].Status, m.Tasks[i].End = state, status, at
		}
	}
}

// firmwareOf are the components of a class that have firmware, with the version
// that they come with.
func firmwareOf(class string) map[string]string {
	f := map[string]string{}
	switch class {
	case ClassCompute:
		f["FW_BMC_0"], f["FW_ERoT_BMC_0"], f["UEFI"] = "GB200Nvl-25.01-D", "01.04.0008.0000_n04", "buildbrain-gcid-38960421"
		f["HGX_FW_BMC_0"], f["HGX_FW_CPLD_0"] = "GB200Nvl-25.01-C", "0.22"
		for i := range 2 {
			f["HGX_FW_CPU_"+strconv.Itoa(i)], f["HGX_FW_FPGA_"+strconv.Itoa(i)] = "02.03.19", "1.20"
			f["NIC_"+strconv.Itoa(i)] = "32.43.2402"
		}
		for i := range 4 {
			f["HGX_FW_GPU_"+strconv.Itoa(i)] = "97.00.82.00.18"
		}
	case ClassNVSwitch:
		f["MGX_FW_BMC_0"], f["MGX_FW_ERoT_BMC_0"], f["MGX_FW_CPU_0"], f["MGX_FW_FPGA_0"], f["CPLD_0"] = "88.0002.0951", "01.04.0008.0000_n04", "01.02.0003", "1.17", "0.12"
		for i := range 2 {
			f["MGX_FW_NVSwitch_"+strconv.Itoa(i)] = "35.2014.1652"
		}
	case ClassPowerShelf:
		f["PMC"] = "r1.3.7"
		for i := range PowerSupplies {
			f["PSU_"+strconv.Itoa(i)] = "0701.0303.0D00"
		}
	}
	return f
}

// PowerSupplies is how many supplies a power shelf has.
const PowerSupplies = 6

// Parts are the parts of a class that can fail, as the facts of a BMC are
// called.
func Parts(class string) []string {
	switch class {
	case ClassCompute:
		return []string{"chassis_health", "processors", "memory", "storage", "network_adapters", "thermal", "gpus", "fpgas"}
	case ClassNVSwitch:
		return []string{"chassis_health", "thermal"}
	case ClassPowerShelf:
		return []string{"chassis_health", "power_supplies", "thermal"}
	}
	return nil
}

// seedHardware gives a machine its firmware and its health: of a hundred, three
// have a part that warns and one has a part that is broken; two are a firmware
// behind.
func (s *State) seedHardware(r *rand.Rand, m *Machine) {
	m.Firmware = firmwareOf(m.Class)
	m.LastReset = s.Now.Add(-time.Duration(1+r.IntN(60*24)) * time.Hour).Truncate(time.Second)
	m.BMC.Reset = s.Now.Add(-time.Duration(1+r.IntN(90*24)) * time.Hour).Truncate(time.Second)
	m.AssetTag = fmt.Sprintf("A%06d", r.IntN(1_000_000))
	parts := Parts(m.Class)
	dice := r.IntN(100)
	if len(parts) == 0 {
		return
	}
	part := parts[r.IntN(len(parts))]
	switch {
	case dice < 3:
		m.Health[part] = "Warning"
	case dice < 4:
		m.Health[part] = "Critical"
	case dice < 6 && m.Class == ClassCompute:
		m.Firmware["FW_BMC_0"] = "GB200Nvl-24.12-8"
	}
}
