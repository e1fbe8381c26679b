package netbox

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// kind is one kind of objects: where it is served, what is shown of one and what
// may be written.
type kind struct {
	path    string // below /api/
	name    string // as the world calls it
	model   string // as messages call it
	full    []member
	brief   []member // by which others refer to it
	inputs  []input
	fixed   bool     // only read: what machines are made of
	filters []string // fields of it by whose value or reference it is found, see filter.go
}

// member is one member of an object as it is shown.
type member struct {
	name string
	form string // see forms
}

// input is one member that may be written.
type input struct {
	name     string
	form     string // text, ref, choice, number, bool, any
	max      int    // the length of a text
	null     bool   // may be null
	required bool   // by a POST
}

// The tables hold NAME[@SINCE][<UNTIL][:FORM] for a member (null without a form)
// and NAME[@SINCE][<UNTIL]:FORM[:MAX][?][!] for an input (? may be null, !
// required); SINCE is the first generation that has it, UNTIL the first that no
// longer has.
const (
	head      = "id:id url:url display_url@42:web display:display "
	headBrief = "id:id url:url display:display "
	briefly   = headBrief + "name:name slug:slug description@40:text"
	stamps    = " tags:tags custom_fields:{} created:created last_updated:updated "

	deviceMembers = head + `name:nullname device_type:ref role:ref device_role<40:role tenant:ref platform:ref serial:text asset_tag:nulltext
		site:ref location:ref rack:ref position:height face:choice latitude longitude parent_device status:choice airflow:choice cooling_method@47
		primary_ip:primary primary_ip4:ref primary_ip6 oob_ip:ref cluster virtual_chassis vc_position vc_priority description:text owner@45
		comments:text config_template config_context:context local_context_data:any tags:tags custom_fields:custom created:created
		last_updated:updated console_port_count:0 console_server_port_count:0 power_port_count:0 power_outlet_count:0 cooling_intake_count@47:0
		cooling_outflow_count@47:0 interface_count:0 front_port_count:0 rear_port_count:0 device_bay_count:0 module_bay_count:0
		inventory_item_count:0`
	deviceInputs = `name:text:64? device_type:ref! role:ref! device_role<40:role tenant:ref? platform:ref? serial:text:50 asset_tag:text:50? site:ref!
		location:ref? rack:ref? position:number? face:choice? status:choice airflow:choice? primary_ip4:ref? oob_ip:ref? description:text:200
		comments:text:10000 local_context_data:any?`

	rackMembers = head + `name:name facility_id:nulltext site:ref location:ref group@46 tenant:ref status:choice role serial:text asset_tag:nulltext
		type<42 rack_type@42 form_factor@42 width:width u_height:u starting_unit:1 weight max_weight weight_unit desc_units:false outer_width
		outer_height@44 outer_depth outer_unit mounting_depth airflow@42 cooling_capability@47 cooling_capacity@47 description:text owner@45
		comments:text` + stamps + `device_count:count powerfeed_count:0`
	siteMembers = head + `name:name slug:slug status:choice region group tenant:ref facility:text time_zone:nulltext description:text
		physical_address:text shipping_address:text latitude longitude owner@45 comments:text asns:[]` + stamps + `circuit_count:0 device_count:count
		prefix_count:0 rack_count:count virtualmachine_count:0 vlan_count:0`
	locationMembers = head + `name:name slug:slug site:ref parent status:choice tenant:ref facility@40:text description:text` + stamps + `rack_count:count
		device_count:count prefix_count@42:0 owner@45 comments@44:text _depth:0`
	roleMembers = head + `name:name slug:slug color:text vm_role:true config_template parent@44 description:text` + stamps + `device_count:count
		virtualmachine_count:0 owner@45 comments@44:text _depth@44:0`
	platformMembers = head + `parent@44 name:name slug:slug manufacturer config_template description:text owner@45 comments@44:text` + stamps +
		`device_count:count virtualmachine_count:0 _depth@44:0`
	manufacturerMembers = head + `name:name slug:slug description:text owner@45 comments@45:text` + stamps + `devicetype_count:count moduletype_count@45:0
		inventoryitem_count:0 platform_count:0`
	typeMembers = head + `manufacturer:ref default_platform model:name slug:slug part_number:text u_height:height exclude_from_utilization:false
		is_full_depth:true subdevice_role airflow cooling_method@47 weight weight_unit end_of_life@47 front_image rear_image description:text owner@45
		comments:text` + stamps + `device_count:count console_port_template_count:0 console_server_port_template_count:0 power_port_template_count:0
		power_outlet_template_count:0 cooling_intake_template_count@47:0 cooling_outflow_template_count@47:0 interface_template_count:0
		front_port_template_count:0 rear_port_template_count:0 device_bay_template_count:0 module_bay_template_count:0
		inventory_item_template_count:0`
	tenantMembers = head + `name:name slug:slug group description:text owner@45 comments:text` + stamps + `circuit_count:0 device_count:count
		ipaddress_count:0 prefix_count:0 rack_count:count site_count:count virtualmachine_count:0 vlan_count:0 vrf_count:0 cluster_count:0`
	tagMembers = head + `name:name slug:slug color:text description:text weight@44:1000 object_types:[] tagged_items:count created:created
		last_updated:updated`
	addressMembers = head + `family:family address:name vrf tenant status:active role assigned_object_type:interface assigned_object_id:device
		assigned_object:assigned nat_inside nat_outside:[] dns_name:text description:text owner@45 comments:text` + stamps
	customMembers = head + `object_types@40:types content_types<40:types type:cftype related_object_type@40:related object_type<40:related
		data_type:cfdata name:name label:label group_name:text description:text required:false unique@42:false search_weight:1000 filter_logic:loose
		ui_visible:always ui_editable:yes is_cloneable:false nulls_first@47:true default related_object_filter@42 weight:100 validation_minimum
		validation_maximum validation_regex:text validation_schema@46 choice_set:choiceset status@47:active owner@45 comments@40:text created:created
		last_updated:updated`

	interfaceMembers = head + `device:ref vdcs:[] module name:name label:text type:iftype channels@47 channel_id@47 enabled:true parent bridge
		bridge_interfaces@44:[] lag mtu mac_address:mac primary_mac_address@42:macobject mac_addresses@42:maclist speed duplex wwn mgmt_only:flag
		description:text mode rf_role rf_channel poe_mode poe_type rf_channel_frequency rf_channel_width tx_power untagged_vlan tagged_vlans:[]
		qinq_svlan@42 vlan_translation_policy@42 mark_connected:false cable:cable cable_end:cableend wireless_link link_peers:linkpeers
		link_peers_type:peertype wireless_lans:[] vrf l2vpn_termination connected_endpoints:endpoints connected_endpoints_type:peertype
		connected_endpoints_reachable:reachable owner@45` + stamps + `count_ipaddresses:1 count_fhrp_groups:0 _occupied:occupied`

	counted   = briefly + " device_count@44:0 virtualmachine_count@44:0 _depth@44:0"
	plainOf   = "name:text:100! slug:text:100! description:text:200 comments:text:10000"
	siteOwned = "status:choice site:ref! tenant:ref? description:text:200 comments:text:10000"
)

// statuses are the words of each status, by the kind that has it, and of other
// choices by their name.
var choiceLabels = map[string][][2]string{
	"devices.status": {{"offline", "Offline"}, {"active", "Active"}, {"planned", "Planned"}, {"staged", "Staged"}, {"failed", "Failed"},
		{"inventory", "Inventory"}, {"decommissioning", "Decommissioning"},
		{"rma", "RMA"}, {"decommissioned", "Decommissioned"}}, // these two by the fleet's FIELD_CHOICES
	"racks.status":     {{"reserved", "Reserved"}, {"available", "Available"}, {"planned", "Planned"}, {"active", "Active"}, {"deprecated", "Deprecated"}},
	"sites.status":     {{"planned", "Planned"}, {"staging", "Staging"}, {"active", "Active"}, {"decommissioning", "Decommissioning"}, {"retired", "Retired"}},
	"locations.status": {{"planned", "Planned"}, {"staging", "Staging"}, {"active", "Active"}, {"decommissioning", "Decommissioning"}, {"retired", "Retired"}},
	"devices.face":     {{"front", "Front"}, {"rear", "Rear"}},
	"devices.airflow":  {{"front-to-rear", "Front to rear"}, {"rear-to-front", "Rear to front"}, {"passive", "Passive"}},
}

// references are the kinds that members refer to.
var references = map[string]string{
	"device_type": world.KindDeviceType, "role": world.KindRole, "tenant": world.KindTenant, "platform": world.KindPlatform, "site": world.KindSite,
	"location": world.KindLocation, "rack": world.KindRack, "manufacturer": world.KindManufacturer, "primary_ip4": world.KindIP, "oob_ip": world.KindIP,
	"device": world.KindDevice,
}

// kindsOf gives what a generation serves.
func kindsOf(generation int) (map[string]*kind, error) {
	all := map[string]*kind{}
	for _, k := range []struct{ path, name, model, full, brief, inputs, filters string }{
		{"dcim/devices", world.KindDevice, "Device", deviceMembers, headBrief + "name:nullname description@40:text", deviceInputs,
			"role site location rack tenant platform device_type status serial asset_tag face"},
		{"dcim/racks", world.KindRack, "Rack", rackMembers, headBrief + "name:name description@40:text", "name:text:100! u_height:number location:ref? serial:text:50 " + siteOwned, "site location tenant status"},
		{"dcim/sites", world.KindSite, "Site", siteMembers, briefly, "status:choice tenant:ref? facility:text:50 time_zone:text:50? " + plainOf, "status tenant"},
		{"dcim/locations", world.KindLocation, "Location", locationMembers, briefly + " rack_count@40:0 _depth:0", "name:text:100! slug:text:100! " + siteOwned, "site status tenant"},
		{"dcim/device-roles", world.KindRole, "DeviceRole", roleMembers, counted, "color:text:6 " + plainOf, ""},
		{"dcim/platforms", world.KindPlatform, "Platform", platformMembers, counted, plainOf, ""},
		{"dcim/manufacturers", world.KindManufacturer, "Manufacturer", manufacturerMembers, briefly, plainOf, ""},
		{"dcim/device-types", world.KindDeviceType, "DeviceType", typeMembers,
			headBrief + "manufacturer:ref model:name slug:slug description@40:text device_count@45:0", "manufacturer:ref! model:text:100! slug:text:100! u_height:number description:text:200", "manufacturer"},
		{"tenancy/tenants", world.KindTenant, "Tenant", tenantMembers, briefly, plainOf, ""},
		{"dcim/interfaces", world.KindInterface, "Interface", interfaceMembers,
			headBrief + "device:ref name:name description@40:text cable:cable _occupied:occupied", "", "device"},
		{"extras/tags", world.KindTag, "Tag", tagMembers, "id:id url:url display_url@42:web display:display name:name slug:slug color:text", "color:text:6 " + plainOf, ""},
		{"extras/custom-fields", world.KindCustomField, "CustomField", customMembers, headBrief + "name:name description@40:text", "", ""},
		{"ipam/ip-addresses", world.KindIP, "IPAddress", addressMembers,
			headBrief + "family:familybrief address:name nat_inside@46 nat_outside@46:[] dns_name@46:text description@40:text", "address:text:50! dns_name:text:255 description:text:200 device:any", ""},
	} {
		made := &kind{fixed: k.name == world.KindInterface, path: k.path, name: k.name, model: k.model, filters: strings.Fields(k.filters)}
		var err error
		if made.full, err = members(k.full, generation); err != nil {
			return nil, err
		}
		if made.brief, err = members(k.brief, generation); err != nil {
			return nil, err
		}
		if made.inputs, err = inputs(k.inputs, generation); err != nil {
			return nil, err
		}
		all[k.path] = made
	}
	return all, nil
}

// entry reads NAME[@SINCE][<UNTIL] and what follows a colon; false: not of the
// generation.
func entry(word string, generation int) (name, rest string, ok bool, err error) {
	name, rest, _ = strings.Cut(word, ":")
	since, until := 0, 1000
	if before, after, has := strings.Cut(name, "<"); has {
		name = before
		if until, err = strconv.Atoi(after); err != nil {
			return "", "", false, fmt.Errorf("%s: %w", word, err)
		}
	}
	if before, after, has := strings.Cut(name, "@"); has {
		name = before
		if since, err = strconv.Atoi(after); err != nil {
			return "", "", false, fmt.Errorf("%s: %w", word, err)
		}
	}
	return name, rest, generation >= since && generation < until, nil
}

func members(table string, generation int) (list []member, err error) {
	for _, word := range strings.Fields(table) {
		name, form, ok, err := entry(word, generation)
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, member{name, form})
		}
	}
	return list, nil
}

func inputs(table string, generation int) (list []input, err error) {
	for _, word := range strings.Fields(table) {
		name, rest, ok, err := entry(word, generation)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		in := input{name: name}
		if rest, in.required = strings.CutSuffix(rest, "!"); in.required {
			in.required = true
		}
		rest, in.null = strings.CutSuffix(rest, "?")
		form, length, _ := strings.Cut(rest, ":")
		in.form = form
		if length != "" {
			if in.max, err = strconv.Atoi(length); err != nil {
				return nil, fmt.Errorf("%s: %w", word, err)
			}
		}
		list = append(list, in)
	}
	return list, nil
}
