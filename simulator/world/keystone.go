package world

import (
	"slices"
	"strconv"
	"time"
)

// AppCredential is an application credential of Keystone.
type AppCredential struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Secret  string    `json:"secret"`
	User    string    `json:"user"`    // id
	Project string    `json:"project"` // id
	Created time.Time `json:"created"`
}

func credentialKind() kind[AppCredential] {
	return kind[AppCredential]{clone: copied[AppCredential]}
}

// Project is a project of Keystone.
type Project struct{ ID, Name string }

// AdminProject is the name of the project in which everything is allowed.
const AdminProject = "admin"

// Projects gives the projects that all sites know together.
func (s *State) Projects() []Project {
	projects := []Project{{projectID(AdminProject, 0), AdminProject}, {projectID("service", 0), "service"}}
	for name, site := range s.Sites.All() {
		projects = append(projects,
			Project{site.Lessees.Enrol, name + "-enrol"}, Project{site.Lessees.Slurm, name + "-slurm"}, Project{site.Lessees.Maintenance, name + "-maintenance"})
		for i, id := range site.Customers {
			projects = append(projects, Project{id, name + "-customer-" + strconv.Itoa(i+1)})
		}
	}
	return projects
}

// Project gives a project by its id or name, false if there is none.
func (s *State) Project(ident string) (Project, bool) {
	projects := s.Projects()
	i := slices.IndexFunc(projects, func(p Project) bool { return p.ID == ident || p.Name == ident })
	if i < 0 {
		return Project{}, false
	}
	return projects[i], true
}
