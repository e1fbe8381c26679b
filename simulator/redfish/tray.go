package redfish

import "strconv"

const (
	systemsPath = root + "/Systems"
	systemPath  = systemsPath + "/System_0"
	boardPath   = systemsPath + "/HGX_Baseboard_0"
	chassisPath = root + "/Chassis"
)

// builder makes the resources of a model.
type builder struct{ *model }

// add gives a path what is rendered there.
func (b builder) add(path string, render func(v *view) object) *resource {
	res := &resource{render: render}
	b.resources[path] = res
	return res
}

// list gives a path a collection of what is below it by the given ids, each
// rendered by its index.
func (b builder) list(path, kind, name string, ids []string, board bool, render func(v *view, id string, i int) object) {
	paths := make([]string, len(ids))
	for i, id := range ids {
		paths[i] = path + "/" + id
		b.add(paths[i], func(v *view) object {
			o := render(v, id, i)
			o["@odata.id"], o["Id"] = paths[i], id
			return o
		}).board = board
	}
	b.add(path, func(*view) object { return collection(path, kind, name, paths...) }).board = board
}

// numbered gives ids such as GPU_0, GPU_1.
func numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = prefix + strconv.Itoa(i)
	}
	return ids
}

// part is the status of one of several parts of a subsystem: what is wrong is
// wrong with the first.
func (v *view) part(subsystem string, i int) object {
	if i > 0 {
		return object{"State": "Enabled", "Health": "OK", "HealthRollup": "OK"}
	}
	return v.status(subsystem)
}

// host makes the System of the host, without what hangs on it.
func (b builder) host() {
	b.add(systemPath, (*view).hostSystem).change = (*view).changeSystem
	addReset(b.model, systemPath, "ComputerSystem.Reset", systemResets)
}

func (v *view) hostSystem() object {
	started, state := "None", "None"
	if v.m.On {
		started = "OSBootStarted"
		if v.m.Deployed {
			started = "OSRunning"
		}
		state = instant(v.m.LastReset)
	}
	o := object{
		"@odata.id": systemPath, "@odata.type": "#ComputerSystem.v1_22_0.ComputerSystem", "Id": "System_0", "Name": "System_0", "SystemType": "Physical",
		"Manufacturer": v.m.Vendor, "Model": v.m.Model, "SerialNumber": v.m.Serial, "UUID": v.m.UUID, "AssetTag": v.m.AssetTag, "IndicatorLED": v.led(),
		"PowerState": v.power(), "PowerRestorePolicy": "LastState", "LastResetTime": instant(v.m.LastReset), "Boot": v.boot(),
		"BootProgress": object{"LastState": started, "LastStateTime": state}, "Status": object{"State": "Enabled", "Health": v.worst("processors", "memory", "storage")},
		"Actions": object{"#ComputerSystem.Reset": v.resetAction("ComputerSystem.Reset", systemPath, systemResets)},
		"Links":   object{"Chassis": links(chassisPath + "/Chassis_0"), "ManagedBy": links(managerPath)},
	}
	if state == "None" {
		o["BootProgress"] = object{"LastState": "None", "LastStateTime": instant(v.m.LastReset)}
	}
	return o
}

// chassis makes a Chassis. more puts into it what it has.
func (b builder) chassis(id, kind string, board bool, more func(v *view, o object)) *resource {
	path := chassisPath + "/" + id
	res := b.add(path, func(v *view) object {
		o := object{
			"@odata.id": path, "@odata.type": "#Chassis.v1_22_0.Chassis", "Id": id, "Name": id, "ChassisType": kind, "Manufacturer": v.m.Vendor, "Model": v.m.Model,
			"PowerState": v.power(), "Status": object{"State": "Enabled", "Health": "OK", "HealthRollup": "OK"}, "Links": object{"ManagedBy": links(managerPath)},
		}
		more(v, o)
		return o
	})
	res.board = board
	return res
}

// mainChassis makes the chassis of the whole: its status rolls everything up.
func (b builder) mainChassis(id, kind string, resets []string, more func(v *view, o object)) string {
	path := chassisPath + "/" + id
	b.chassis(id, kind, false, func(v *view, o object) {
		o["SerialNumber"], o["AssetTag"], o["IndicatorLED"] = v.m.Serial, v.m.AssetTag, v.led()
		o["Status"] = object{"State": "Enabled", "Health": v.health("chassis_health"), "HealthRollup": v.worst()}
		o["ThermalSubsystem"], o["PowerSubsystem"] = link(path+"/ThermalSubsystem"), link(path+"/PowerSubsystem")
		o["Actions"] = object{"#Chassis.Reset": v.resetAction("Chassis.Reset", path, resets)}
		more(v, o)
	}).change = func(v *view, body object) *answer { return v.changeChassis(path, body) }
	addReset(b.model, path, "Chassis.Reset", resets)
	b.add(path+"/ThermalSubsystem", func(v *view) object {
		return object{
			"@odata.id": path + "/ThermalSubsystem", "@odata.type": "#ThermalSubsystem.v1_3_0.ThermalSubsystem", "Id": "ThermalSubsystem", "Name": "Thermal Subsystem",
			"Status": v.status("thermal"), "Fans": link(path + "/ThermalSubsystem/Fans"),
		}
	})
	b.list(path+"/ThermalSubsystem/Fans", "Fan", "Fan Collection", numbered("FAN_", 6), false, func(v *view, id string, i int) object {
		return object{
			"@odata.type": "#Fan.v1_5_0.Fan", "Name": "Fan " + strconv.Itoa(i), "Status": v.part("thermal", i), "SpeedPercent": object{"Reading": 42.5, "SpeedRPM": 9300},
		}
	})
	b.add(path+"/PowerSubsystem", func(v *view) object {
		return object{
			"@odata.id": path + "/PowerSubsystem", "@odata.type": "#PowerSubsystem.v1_1_0.PowerSubsystem", "Id": "PowerSubsystem", "Name": "Power Subsystem",
			"Status": v.status("power_supplies"), "PowerSupplies": link(path + "/PowerSubsystem/PowerSupplies"),
		}
	})
	return path
}

// chassisList makes the collection of the Chassis.
func (b builder) chassisList(ids ...string) {
	paths := make([]string, len(ids))
	for i := range ids {
		paths[i] = chassisPath + "/" + ids[i]
	}
	b.add(chassisPath, func(*view) object { return collection(chassisPath, "Chassis", "Chassis Collection", paths...) })
}

// switchModel is what the BMC of an NVLink switch tray has.
func switchModel() *model {
	b := builder{common("GB200 NVSwitch", "Systems", "Chassis")}
	b.add(systemsPath, func(*view) object {
		return collection(systemsPath, "ComputerSystem", "Computer System Collection", systemPath)
	})
	b.host()
	chassis := b.mainChassis("Chassis_0", "Component", []string{"PowerCycle"}, func(_ *view, o object) {
		o["Links"] = object{"ManagedBy": links(managerPath), "ComputerSystems": links(systemPath), "Contains": links(chassisPath+"/MGX_NVSwitch_0", chassisPath+"/MGX_NVSwitch_1")}
	})
	b.list(chassis+"/PowerSubsystem/PowerSupplies", "PowerSupply", "Power Supply Collection", nil, false, nil)
	ids := []string{"Chassis_0"}
	for _, id := range numbered("MGX_NVSwitch_", 2) {
		b.chassis(id, "Component", false, func(_ *view, o object) { o["Model"] = "NVSwitch" })
		ids = append(ids, id)
	}
	b.chassisList(ids...)
	return b.model
}

// shelfModel is what the BMC of a power shelf has: no System, a supply's power
// is the shelf's.
func shelfModel() *model {
	b := builder{common("PSB-33K", "Chassis")}
	chassis := b.mainChassis("powershelf", "Shelf", shelfResets, func(v *view, o object) {})
	b.chassisList("powershelf")
	b.list(chassis+"/PowerSubsystem/PowerSupplies", "PowerSupply", "Power Supply Collection", numbered("PSU_", supplies), false, func(v *view, id string, i int) object {
		status := v.part("power_supplies", i)
		if !v.m.On {
			status["State"] = "StandbyOffline"
		}
		return object{
			"@odata.type": "#PowerSupply.v1_6_0.PowerSupply", "Name": "Power Supply " + strconv.Itoa(i), "Manufacturer": v.m.Vendor, "Model": "PSU-5K5",
			"SerialNumber": v.m.Serial + "-" + strconv.Itoa(i), "FirmwareVersion": v.m.Firmware[id], "PowerCapacityWatts": 5500, "PowerState": v.power(), "Status": status,
		}
	})
	return b.model
}
