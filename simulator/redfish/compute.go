package redfish

import (
	"strconv"

	"github.com/musterhq/muster/simulator/world"
)

const supplies = world.PowerSupplies

// computeModel is what the BMC of a compute tray has: the host's System and the
// baseboard's, which is listed first and does not answer while the host is off.
func computeModel() *model {
	b := builder{common("GB200 NVL", "Systems", "Chassis")}
	b.add(systemsPath, func(*view) object {
		return collection(systemsPath, "ComputerSystem", "Computer System Collection", boardPath, systemPath)
	})
	b.host()
	b.hostParts()
	b.baseboard()
	chassis := b.mainChassis("Chassis_0", "Shelf", []string{"PowerCycle"}, func(_ *view, o object) {
		o["Links"] = object{"ManagedBy": links(managerPath), "ComputerSystems": links(systemPath)}
	})
	b.list(chassis+"/PowerSubsystem/PowerSupplies", "PowerSupply", "Power Supply Collection", nil, false, nil)
	ids := []string{"Chassis_0", "HGX_Chassis_0"}
	b.chassis("HGX_Chassis_0", "Module", true, func(v *view, o object) {
		o["Status"] = object{"State": "Enabled", "Health": v.worst("gpus", "fpgas"), "HealthRollup": v.worst("gpus", "fpgas")}
		o["Links"] = object{"ManagedBy": links(managerPath), "ComputerSystems": links(boardPath)}
	})
	for i, id := range numbered("IO_Board_", 2) {
		path := chassisPath + "/" + id
		b.chassis(id, "Module", false, func(_ *view, o object) { o["NetworkAdapters"] = link(path + "/NetworkAdapters") })
		b.list(path+"/NetworkAdapters", "NetworkAdapter", "Network Adapter Collection", numbered(id+"_CX7_", 2), false, func(v *view, _ string, j int) object {
			return object{
				"@odata.type": "#NetworkAdapter.v1_11_0.NetworkAdapter", "Name": "Network Adapter", "Manufacturer": "NVIDIA", "Model": "ConnectX-7",
				"Status": v.part("network_adapters", 2*i+j),
			}
		})
		ids = append(ids, id)
	}
	for i, id := range numbered("HGX_GPU_", 4) {
		b.chassis(id, "Component", true, func(v *view, o object) {
			o["Model"], o["Status"] = "GB200 186GB HBM3e", v.part("gpus", i)
			o["SerialNumber"] = v.m.Serial + "-G" + strconv.Itoa(i)
		})
		ids = append(ids, id)
	}
	b.chassisList(ids...)
	return b.model
}

// hostParts are the processors, the memory and the drives of the host.
func (b builder) hostParts() {
	whole := b.resources[systemPath].render
	b.resources[systemPath].render = func(v *view) object {
		o := whole(v)
		o["ProcessorSummary"] = object{"Count": 2, "CoreCount": 144, "Model": "ARMv9", "Status": v.status("processors")}
		o["MemorySummary"] = object{"TotalSystemMemoryGiB": 960, "Status": v.status("memory")}
		o["Processors"], o["Memory"], o["Storage"] = link(systemPath+"/Processors"), link(systemPath+"/Memory"), link(systemPath+"/Storage")
		return o
	}
	b.list(systemPath+"/Processors", "Processor", "Processor Collection", numbered("CPU_", 2), false, func(v *view, _ string, i int) object {
		return object{
			"@odata.type": "#Processor.v1_20_0.Processor", "Name": "Processor", "ProcessorType": "CPU", "Manufacturer": "NVIDIA", "Version": "Grace A02",
			"TotalCores": 72, "TotalThreads": 72, "MaxSpeedMHz": 4000, "Status": v.part("processors", i),
		}
	})
	b.list(systemPath+"/Memory", "Memory", "Memory Module Collection", numbered("Memory_", 2), false, func(v *view, _ string, i int) object {
		return object{
			"@odata.type": "#Memory.v1_20_0.Memory", "Name": "DIMM Slot", "MemoryType": "DRAM", "MemoryDeviceType": "LPDDR5_SDRAM", "CapacityMiB": 491520,
			"Status": v.part("memory", i),
		}
	})
	const controller = systemPath + "/Storage/NVMe"
	b.list(systemPath+"/Storage", "Storage", "Storage Collection", []string{"NVMe"}, false, func(v *view, _ string, _ int) object {
		drives := make([]string, 8)
		for i := range drives {
			drives[i] = controller + "/Drives/NVMe_" + strconv.Itoa(i)
		}
		return object{
			"@odata.type": "#Storage.v1_17_0.Storage", "Name": "NVMe Storage", "Status": v.status("storage"), "Drives": links(drives...), "Drives@odata.count": len(drives),
		}
	})
	b.list(controller+"/Drives", "Drive", "Drive Collection", numbered("NVMe_", 8), false, func(v *view, _ string, i int) object {
		return object{
			"@odata.type": "#Drive.v1_20_0.Drive", "Name": "NVMe Drive", "MediaType": "SSD", "Protocol": "NVMe", "CapacityBytes": 3840755982336,
			"SerialNumber": v.m.Serial + "-D" + strconv.Itoa(i), "Status": v.part("storage", i),
		}
	})
}

// baseboard is the System of the GPUs. It has no reset of its own.
func (b builder) baseboard() {
	b.add(boardPath, func(v *view) object {
		return object{
			"@odata.id": boardPath, "@odata.type": "#ComputerSystem.v1_22_0.ComputerSystem", "Id": "HGX_Baseboard_0", "Name": "HGX_Baseboard_0", "SystemType": "Physical",
			"Manufacturer": "NVIDIA", "Model": "GB200 NVL", "SerialNumber": v.m.Serial + "-B", "PowerState": powerWord(v.m.On),
			"Status":     object{"State": "Enabled", "Health": v.worst("gpus", "fpgas"), "HealthRollup": v.worst("gpus", "fpgas")},
			"Processors": link(boardPath + "/Processors"), "LastResetTime": instant(v.m.LastReset),
			"Links": object{"Chassis": links(chassisPath + "/HGX_Chassis_0"), "ManagedBy": links(managerPath)},
		}
	}).board = true
	ids := append(numbered("GPU_", 4), numbered("FPGA_", 2)...)
	b.list(boardPath+"/Processors", "Processor", "Processor Collection", ids, true, func(v *view, _ string, i int) object {
		o := object{"@odata.type": "#Processor.v1_20_0.Processor", "Name": "Processor", "Manufacturer": "NVIDIA", "ProcessorType": "GPU", "Status": v.part("gpus", i)}
		if i >= 4 {
			o["ProcessorType"], o["Status"] = "FPGA", v.part("fpgas", i-4)
		} else {
			o["SerialNumber"], o["Model"] = v.m.Serial+"-G"+strconv.Itoa(i), "GB200 186GB HBM3e"
		}
		return o
	})
}
