package redfish

import (
	"net/http"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

func link(path string) object { return object{"@odata.id": path} }

func links(paths ...string) []any {
	list := make([]any, len(paths))
	for i := range paths {
		list[i] = link(paths[i])
	}
	return list
}

// collection is a collection of resources of a type.
func collection(path, kind, name string, members ...string) object {
	return object{
		"@odata.id": path, "@odata.type": "#" + kind + "Collection." + kind + "Collection", "Name": name,
		"Members": links(members...), "Members@odata.count": len(members),
	}
}

// fixed is a resource that is always the same. It is made anew each time: who
// gets it may put into it.
func fixed(o object) *resource {
	return &resource{render: func(*view) object { return clone(o) }}
}

func clone(o object) object {
	c := make(object, len(o))
	for name, value := range o {
		switch at := value.(type) {
		case object:
			c[name] = clone(at)
		case []any:
			list := make([]any, len(at))
			for i := range at {
				list[i] = at[i]
				if inner, ok := at[i].(object); ok {
					list[i] = clone(inner)
				}
			}
			c[name] = list
		default:
			c[name] = value
		}
	}
	return c
}

// instant is a time as BMCs write it.
func instant(t time.Time) string {
	if t.IsZero() {
		return "1970-01-01T00:00:00+00:00"
	}
	return strings.Replace(t.UTC().Format(time.RFC3339), "Z", "+00:00", 1)
}

// status is the health of a subsystem, rolled up.
func (v *view) status(part string) object {
	return object{"State": "Enabled", "Health": v.health(part), "HealthRollup": v.health(part)}
}

func (v *view) health(part string) string {
	if h := v.m.Health[part]; h != "" {
		return h
	}
	return "OK"
}

// worst is the worst health among subsystems, all of the machine's by default.
func (v *view) worst(parts ...string) string {
	if len(parts) == 0 {
		for part := range v.m.Health {
			parts = append(parts, part)
		}
	}
	worst := "OK"
	for _, part := range parts {
		switch h := v.health(part); {
		case h == "Critical":
			return h
		case h != "OK":
			worst = h
		}
	}
	return worst
}

// power is the word for what the power does, nil where the BMC does not say.
func (v *view) power() any {
	switch v.m.BMC.Says {
	case "":
	case "null":
		return nil
	default:
		return v.m.BMC.Says
	}
	if len(v.m.Moves) > 0 && v.m.Moves[0].On != v.m.On {
		if v.m.Moves[0].On {
			return "PoweringOn"
		}
		return "PoweringOff"
	}
	return powerWord(v.m.On)
}

func powerWord(on bool) string {
	if on {
		return "On"
	}
	return "Off"
}

func (v *view) led() string {
	if v.m.LED == "" {
		return "Off"
	}
	return v.m.LED
}

// common are the resources that every BMC has. services tells which top-level
// collections there are besides.
func common(product string, services ...string) *model {
	md := &model{resources: map[string]*resource{}, actions: map[string]*action{}}
	md.resources[root] = &resource{render: func(v *view) object { return v.serviceRoot(product, services) }}
	md.resources[root+"/SessionService"] = fixed(object{
		"@odata.id": root + "/SessionService", "@odata.type": "#SessionService.v1_1_9.SessionService", "Id": "SessionService", "Name": "Session Service",
		"ServiceEnabled": true, "SessionTimeout": int(sessionTimeout.Seconds()), "Sessions": link(sessionsPath),
	})
	md.resources[sessionsPath] = sessionCollection()
	md.resources[root+"/AccountService"] = fixed(object{
		"@odata.id": root + "/AccountService", "@odata.type": "#AccountService.v1_15_0.AccountService", "Id": "AccountService", "Name": "Account Service",
		"ServiceEnabled": true, "MinPasswordLength": minPassword, "MaxPasswordLength": maxPassword, "HTTPBasicAuth": "Enabled",
		"Accounts": link(accountsPath), "Roles": link(root + "/AccountService/Roles"),
	})
	md.resources[accountsPath] = accountCollection()
	var rolePaths []string
	for _, name := range []string{"Administrator", "Operator", "ReadOnly"} {
		path := root + "/AccountService/Roles/" + name
		rolePaths = append(rolePaths, path)
		md.resources[path] = roleResource(name)
	}
	md.resources[root+"/AccountService/Roles"] = fixed(collection(root+"/AccountService/Roles", "Role", "Roles Collection", rolePaths...))
	addUpdates(md)
	addManager(md)
	return md
}

func (v *view) serviceRoot(product string, services []string) object {
	o := object{
		"@odata.id": root + "/", "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "Id": "RootService", "Name": "Root Service",
		"RedfishVersion": "1.17.0", "UUID": v.m.UUID, "Vendor": v.m.Vendor, "Product": product,
		"Managers": link(root + "/Managers"), "UpdateService": link(root + "/UpdateService"), "Tasks": link(root + "/TaskService"),
		"ProtocolFeaturesSupported": object{
			"ExpandQuery":     object{"ExpandAll": true, "Levels": true, "Links": true, "NoLinks": true, "MaxLevels": maxExpand},
			"OnlyMemberQuery": false, "SelectQuery": false, "FilterQuery": false, "ExcerptQuery": false,
			"DeepOperations": object{"DeepPATCH": false, "DeepPOST": false},
		},
		"Links": object{"ManagerProvidingService": link(managerPath)},
	}
	for _, name := range services {
		o[name] = link(root + "/" + name)
	}
	o["AccountService"] = link(root + "/AccountService")
	if !v.lenient() {
		o["SessionService"] = link(root + "/SessionService")
		o["Links"] = object{"Sessions": link(sessionsPath), "ManagerProvidingService": link(managerPath)}
	}
	return o
}

const managerPath = root + "/Managers/BMC_0"

func addManager(md *model) {
	md.resources[root+"/Managers"] = fixed(collection(root+"/Managers", "Manager", "Manager Collection", managerPath))
	md.resources[managerPath] = &resource{render: (*view).manager}
	md.resources[managerPath+"/NetworkProtocol"] = fixed(object{
		"@odata.id": managerPath + "/NetworkProtocol", "@odata.type": "#ManagerNetworkProtocol.v1_9_0.ManagerNetworkProtocol",
		"Id": "NetworkProtocol", "Name": "Manager Network Protocol", "Status": object{"State": "Enabled", "Health": "OK"},
		"HTTPS": object{"ProtocolEnabled": true, "Port": 443}, "HTTP": object{"ProtocolEnabled": false, "Port": nil},
		"SSH": object{"ProtocolEnabled": true, "Port": 22}, "SSDP": object{"ProtocolEnabled": false}, "IPMI": object{"ProtocolEnabled": false, "Port": 623},
	})
	md.resources[managerPath+"/EthernetInterfaces"] = fixed(collection(managerPath+"/EthernetInterfaces", "EthernetInterface", "Ethernet Network Interface Collection", managerPath+"/EthernetInterfaces/eth0"))
	md.resources[managerPath+"/EthernetInterfaces/eth0"] = &resource{render: func(v *view) object {
		return object{
			"@odata.id": managerPath + "/EthernetInterfaces/eth0", "@odata.type": "#EthernetInterface.v1_9_0.EthernetInterface", "Id": "eth0", "Name": "Manager Ethernet Interface",
			"MACAddress": v.m.MAC, "LinkStatus": "LinkUp", "InterfaceEnabled": true, "HostName": v.m.Name + "-bmc", "Status": object{"State": "Enabled", "Health": "OK"},
			"IPv4Addresses": []any{object{"Address": v.m.Address, "AddressOrigin": "DHCP", "SubnetMask": "255.0.0.0"}},
		}
	}}
	md.actions[managerPath+"/Actions/Manager.Reset"] = &action{owner: managerPath, name: "Manager.Reset", run: (*view).resetManager}
	md.resources[managerPath+"/ResetActionInfo"] = actionInfo(managerPath, "Reset", managerResets)
	md.actions[managerPath+"/Actions/Manager.ResetToDefaults"] = &action{owner: managerPath, name: "Manager.ResetToDefaults", run: (*view).resetToDefaults}
	md.resources[managerPath+"/ResetToDefaultsActionInfo"] = actionInfo(managerPath, "ResetToDefaults", managerDefaults)
}

var (
	managerResets   = []string{"GracefulRestart", "ForceRestart"}
	managerDefaults = []string{"ResetAll"}
)

func (v *view) manager() object {
	return object{
		"@odata.id": managerPath, "@odata.type": "#Manager.v1_14_0.Manager", "Id": "BMC_0", "Name": "OpenBmc Manager", "ManagerType": "BMC", "Model": "OpenBmc",
		"FirmwareVersion": v.m.Firmware[bmcComponent(v.m.Class)], "DateTime": instant(v.now), "DateTimeLocalOffset": "+00:00",
		"LastResetTime": instant(v.m.BMC.Reset), "PowerState": "On", "ServiceEntryPointUUID": v.m.UUID, "UUID": v.m.UUID,
		"Status": object{"State": "Enabled", "Health": "OK"}, "NetworkProtocol": link(managerPath + "/NetworkProtocol"),
		"EthernetInterfaces": link(managerPath + "/EthernetInterfaces"),
		"Actions": object{
			"#Manager.Reset": v.resetAction("Manager.Reset", managerPath, managerResets), "#Manager.ResetToDefaults": v.resetAction("Manager.ResetToDefaults", managerPath, managerDefaults),
		},
	}
}

func bmcComponent(class string) string {
	switch class {
	case world.ClassCompute:
		return "FW_BMC_0"
	case world.ClassNVSwitch:
		return "MGX_FW_BMC_0"
	}
	return "PMC"
}

// document answers what is no resource: the version, the OData documents.
func (v *view) document(path string) *answer {
	var a *answer
	switch path {
	case "/redfish":
		a = tell(http.StatusOK, object{"v1": root + "/"})
	case root + "/odata":
		value := []any{object{"name": "Service", "kind": "Singleton", "url": root + "/"}}
		for _, name := range []string{"Systems", "Chassis", "Managers", "UpdateService", "SessionService", "AccountService"} {
			if v.find(root+"/"+name) != nil {
				value = append(value, object{"name": name, "kind": "Singleton", "url": root + "/" + name})
			}
		}
		a = tell(http.StatusOK, object{"@odata.context": root + "/$metadata", "value": value})
	case root + "/$metadata":
		a = &answer{status: http.StatusOK, body: []byte(metadata)}
		a.with("Content-Type", "application/xml")
	default:
		return nil
	}
	if !v.reads() {
		a = refuse("OperationNotAllowed")
	}
	a.allow = "GET, HEAD"
	return a
}

const metadata = `<?xml version="1.0" encoding="UTF-8"?>
<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">
  <edmx:Reference Uri="http://redfish.dmtf.org/schemas/v1/ServiceRoot_v1.xml">
    <edmx:Include Namespace="ServiceRoot"/>
    <edmx:Include Namespace="ServiceRoot.v1_15_0"/>
  </edmx:Reference>
  <edmx:DataServices>
    <Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">
      <EntityContainer Name="Service" Extends="ServiceRoot.v1_15_0.ServiceContainer"/>
    </Schema>
  </edmx:DataServices>
</edmx:Edmx>
`
