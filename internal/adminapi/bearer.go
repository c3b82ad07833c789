package adminapi

import "strings"

// BearerToken returns the token in the value of an Authorization header: "Bearer" in any case (RFC
// 9110, 11.1), a space, and the token. ok is false for other schemes and for an empty value.
func BearerToken(value string) (token string, ok bool) {
	scheme, token, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return token, true
}
