package redfish

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

var roles = map[string][]any{
	"Administrator": {"Login", "ConfigureManager", "ConfigureUsers", "ConfigureComponents", "ConfigureSelf"},
	"Operator":      {"Login", "ConfigureComponents", "ConfigureSelf"},
	"ReadOnly":      {"Login", "ConfigureSelf"},
}

const (
	minPassword = 8
	maxPassword = 20
)

func (a account) render() object {
	return object{
		"@odata.id": accountsPath + "/" + a.id, "@odata.type": "#ManagerAccount.v1_12_0.ManagerAccount", "Id": a.id, "Name": "User Account",
		"UserName": a.user, "RoleId": a.role, "Enabled": !a.disabled, "Locked": false, "Password": nil, "AccountTypes": []any{"Redfish"},
		"Links": object{"Role": link(root + "/AccountService/Roles/" + a.role)},
	}
}

// accountList gives all accounts, the fleet's first.
func (v *view) accountList() []account {
	list := []account{v.fleet()}
	v.bmc.mu.Lock()
	defer v.bmc.mu.Unlock()
	for _, user := range slices.Sorted(maps.Keys(v.bmc.accounts)) {
		list = append(list, v.bmc.accounts[user])
	}
	return list
}

func accountCollection() *resource {
	return &resource{
		render: func(v *view) object {
			var paths []string
			for _, a := range v.accountList() {
				paths = append(paths, accountsPath+"/"+a.id)
			}
			return collection(accountsPath, "ManagerAccount", "Accounts Collection", paths...)
		},
		add: addAccount,
	}
}

func addAccount(v *view, body object) *answer {
	if v.account.role != "Administrator" {
		return refuse("InsufficientPrivilege")
	}
	user, _ := body["UserName"].(string)
	password, _ := body["Password"].(string)
	role, _ := body["RoleId"].(string)
	switch {
	case user == "":
		return refuseAt("PropertyMissing", "UserName", "UserName")
	case roles[role] == nil:
		return refuseAt("PropertyValueNotInList", "RoleId", role, "RoleId")
	case len(password) < minPassword || len(password) > maxPassword:
		return refuseAt("PropertyValueFormatError", "Password", "******", "Password")
	}
	if _, ok := v.accountOf(user); ok {
		return refuse("ResourceAlreadyExists", "ManagerAccount", "UserName", user)
	}
	v.bmc.mu.Lock()
	defer v.bmc.mu.Unlock()
	if len(v.bmc.accounts) >= maxAccounts {
		return refuse("CreateLimitReachedForResource")
	}
	v.bmc.made++
	a := account{id: strconv.Itoa(1 + v.bmc.made), user: user, password: password, role: role}
	v.bmc.accounts[user] = a
	return tell(http.StatusCreated, a.render()).with("Location", v.location(accountsPath+"/"+a.id))
}

// accountResource is an account by its id.
func (v *view) accountResource(id string) *resource {
	list := v.accountList()
	i := slices.IndexFunc(list, func(a account) bool { return a.id == id })
	if i < 0 {
		return nil
	}
	a := list[i]
	res := &resource{
		render: func(*view) object { return a.render() },
		change: func(v *view, body object) *answer { return v.changeAccount(a, body) },
	}
	if i > 0 {
		res.remove = func(v *view) *answer {
			if v.account.role != "Administrator" {
				return refuse("InsufficientPrivilege")
			}
			v.bmc.mu.Lock()
			defer v.bmc.mu.Unlock()
			delete(v.bmc.accounts, a.user)
			v.bmc.sessions = slices.DeleteFunc(v.bmc.sessions, func(s session) bool { return s.user == a.user })
			return &answer{status: http.StatusNoContent}
		}
	}
	return res
}

// ownPassword tells whether a path is the account of who asks, who may change
// its password.
func (v *view) ownPassword(path string) bool { return path == accountsPath+"/"+v.account.id }

func (v *view) changeAccount(a account, body object) *answer {
	if v.account.role != "Administrator" && v.account.id != a.id {
		return refuse("InsufficientPrivilege")
	}
	was := a.user
	done, refused := apply(body, map[string]setter{
		"Password": func(value any) (string, bool) {
			password, ok := value.(string)
			if !ok || len(password) < minPassword || len(password) > maxPassword {
				return "PropertyValueFormatError", false
			}
			a.password = password
			return "", true
		},
		"RoleId": func(value any) (string, bool) {
			role, ok := value.(string)
			if !ok || roles[role] == nil || v.account.role != "Administrator" {
				return "PropertyValueNotInList", false
			}
			a.role = role
			return "", true
		},
		"UserName": text(&a.user), "Enabled": opposite(&a.disabled),
	}, v.lenient())
	if refused != nil {
		return refused
	}
	if a.id == v.fleet().id {
		if err := v.do("change account", func(s *world.State, m *world.Machine) error {
			m.BMC.Own, m.BMC.Password = a.password, "" // its name and role are the fleet's
			s.Machines.Put(m.Key(), m)
			return nil
		}); err != nil {
			return failed(err)
		}
		return v.changed(v.fleet().render(), done)
	}
	v.bmc.mu.Lock()
	delete(v.bmc.accounts, was)
	v.bmc.accounts[a.user] = a
	v.bmc.mu.Unlock()
	return v.changed(a.render(), done)
}

func roleResource(name string) *resource {
	return fixed(object{
		"@odata.id": root + "/AccountService/Roles/" + name, "@odata.type": "#Role.v1_3_1.Role", "Id": name, "RoleId": name, "Name": name + " Role",
		"IsPredefined": true, "AssignedPrivileges": roles[name],
	})
}

// dynamic finds what comes and goes: sessions, accounts, tasks, firmware.
func (v *view) dynamic(path string) *resource {
	at := strings.LastIndexByte(path, '/')
	if at < 0 {
		return nil
	}
	id := path[at+1:]
	switch path[:at] {
	case sessionsPath:
		return v.sessionResource(id)
	case accountsPath:
		return v.accountResource(id)
	case tasksPath, monitorsPath:
		return v.taskResource(id, path[:at] == monitorsPath)
	case firmwarePath:
		return v.firmwareResource(id)
	}
	return nil
}

// find gives the resource at a path, or nil.
func (v *view) find(path string) *resource {
	if v.lenient() && strings.HasPrefix(path, root+"/SessionService") {
		return nil
	}
	if res := v.model().resources[path]; res != nil {
		return res
	}
	return v.dynamic(path)
}
