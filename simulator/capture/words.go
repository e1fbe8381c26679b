package capture

import "strings"

func set(lists ...string) map[string]bool {
	m := map[string]bool{}
	for _, list := range lists {
		for word := range strings.FieldsSeq(list) {
			m[word] = true
		}
	}
	return m
}

// words are the values of the enumerations of the Redfish schemas, as far as
// they say what a machine does and how it is.
var words = set(
	// power, resets, boots
	`On Off PoweringOn PoweringOff Paused ForceOff ForceOn ForceRestart GracefulRestart GracefulShutdown PowerCycle PushPowerButton Nmi FullPowerCycle
	Suspend Pause Resume ResetAll PreserveNetwork PreserveNetworkAndUsers AlwaysOn AlwaysOff LastState None Pxe Hdd Cd Diags BiosSetup Usb Floppy UefiTarget
	UefiShell UefiHttp UefiBootNext SDCard Utilities RemoteDrive Recovery Once Continuous UEFI Legacy BootOrder AliasBootOrder OSRunning OSBootStarted
	SystemHardwareInitializationComplete MemoryInitializationStarted PrimaryProcessorInitializationStarted SecondaryProcessorInitializationStarted
	BusInitializationStarted PCIResourceConfigStarted SetupEntered OEM Never AnyFault RetryAttempts RetryAlways`,
	// states and healths
	`OK Ok Warning Critical Enabled Disabled Absent StandbyOffline StandbySpare InTest Starting UnavailableOffline Deferring Quiesced Updating Qualified
	Degraded Unknown Good Normal Running New Completed Exception Killed Cancelled Cancelling Pending Service Stopping Suspended Interrupted Active Inactive
	Activated Lit Blinking NotApplicable NotSupported Supported Available Unavailable Installed Up Down LinkUp LinkDown NoLink Present NotPresent`,
	// what things are
	`CPU GPU FPGA DSP Accelerator Core Thread Physical Virtual OS DPU BMC EnclosureManager ManagementController RackManager AuxiliaryController Rack Blade
	Enclosure StandAlone RackMount Card Cartridge Row Pod Expansion Sidecar Zone Sled Shelf Drawer Module Component IPBasedDrive RackGroup StorageEnclosure
	ImmersionTank HeatExchanger PowerStrip Other DRAM NVDIMM_N NVDIMM_F DDR DDR2 DDR3 DDR4 DDR5 LPDDR5_SDRAM DDR4_SDRAM DDR5_SDRAM HBM HBM2 HBM2E HBM3 RDIMM UDIMM LRDIMM
	SO_DIMM SingleBitECC MultiBitECC NoECC AddressParity SSD HDD SMR NVMe SATA SAS PCIe Ethernet InfiniBand NVLink FibreChannel USB I2C Slot Bay Connector Socket Backplane
	Embedded AC DC ACorDC Gen1 Gen2 Gen3 Gen4 Gen5 Gen6 SingleFunction MultiFunction Front Rear x86 ARM ARM-A64 x86-64 SystemBoard Fan PowerSupply Chassis Memory
	Temperature Voltage Current Power Percent Rotational RPM Cel V A W Hz % Intake Exhaust Inlet Outlet System ComputerSystem Manager`,
	// how things are asked for
	`HTTP HTTPS FTP SFTP SCP NFS CIFS TFTP Immediate OnReset AtMaintenanceWindowStart InMaintenanceWindowOnReset OnStartUpdateRequest String Number Boolean
	NumberArray StringArray Object ObjectArray Administrator Operator ReadOnly Login ConfigureManager ConfigureUsers ConfigureComponents ConfigureSelf
	DHCP Static LinkLocal DHCPv6 SLAAC Redfish Oldest Manual Point Interval Numeric Discrete Gauge Counter KVMIP SSH IPMI Singleton`,
)

// schemaWords are the segments of paths that are the specification's.
var schemaWords = set(`redfish v1 odata $metadata openapi.yaml Systems Chassis Managers Members Actions Oem Settings`)

// parts are the words of which the ids of parts are made, in small letters.
var parts = set(
	// machines and boards
	`system systems self node host chassis baseboard board hgx mgx ucs gb gb200 gb300 h100 rack tray shelf powershelf powershelves sled enclosure backplane
	motherboard fanboard switchboard midplane riser io ubb sxm mezz ocp slot bay socket embedded integrated internal external dedicated module group card storagebackplane
	processormodule main mainsystemchassis self eeprom sys fru`,
	// parts
	`cpu cpus gpu gpus fpga dpu bluefield bf connectx cx nic nics port ports eth usb ethernet infiniband nvlink nvswitch nvswitches switch switches pcie pci retimer pcieretimer
	pcieswitch pcieswitchconfig bmc hmc pmc cpld erot irot rot tpm psu psus supply supplies ps pdb pdu hsc vreg vr fan fans pump pumps memory mem dimm dram hbm disk drive drives ssd nvme nvmessd nvmessda
	nvmecontroller ahci sata sas raid controller controllers controllerstorage video battery cable cables cbc dcscm lp5x outlet outlets mainboard`,
	// firmware and software
	`fw firmware bios uefi me mcu capsule golden staging backup image images config arm atf bsp ofed os sys inforom setup installed current previous available dcim
	lc usc diagnostics driverpack servicemodule idrac lifecyclecontroller software loader bootloader kernel rom sbios`,
	// sensors and readings
	`sensor temp temps temperature volt voltage cur pwr power energy inlet outlet exhaust in out front rear left right pwm rpm leak leakdetector detector coldplate manifold
	total avg min max limit util core coreutil freq state altitude pressure thermal zone`,
	// what stands between
	`fabric fabrics link links bus pciebus pcielink sysbus memcntl self boot default primary secondary local remote to of and a b c d n p2p bridge smbus isabridge serial oob
	vlan lan mgmt network adapter adapters networkadapter nvidia dell supermicro nvidianetworkadapter`,
)
