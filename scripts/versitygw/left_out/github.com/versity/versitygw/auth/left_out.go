package auth

import "errors"

var errLeftOut = errors.New("this build of versitygw has no such IAM service")

func NewLDAPService(Account, string, string, string, string, string, string, string, string, string, string, string, bool) (IAMService, error) {
	return nil, errLeftOut
}

func NewS3(Account, string, string, string, string, string, bool) (IAMService, error) {
	return nil, errLeftOut
}

func NewVaultIAMService(Account, string, string, string, string, string, string, string, string, string, string, string, string, string) (IAMService, error) {
	return nil, errLeftOut
}

type IAMServiceStandaloneConfig struct {
	Endpoint, Access, Secret, ClientCert, ClientCertKey, ServerCA, Region string
	DefaultUserID, DefaultGroupID, DefaultProjectID                       int
}

func NewIAMServiceStandalone(Account, IAMServiceStandaloneConfig) (IAMService, error) {
	return nil, errLeftOut
}
