"""The messages about ACLs, users and quotas; `schemas.py` has the others, and says how they are written."""

from __future__ import annotations

SECURITY_DEFINITIONS = {
    29: """
DescribeAcls 1-3 flexible 2
request
  resource_type_filter int8
  resource_name_filter string ?
  pattern_type_filter int8 =3
  principal_filter string ?
  host_filter string ?
  operation int8
  permission_type int8
response
  throttle_time_ms int32
  error_code int16
  error_message string ?
  resources []
    resource_type int8
    resource_name string
    pattern_type int8 =3
    acls []
      principal string
      host string
      operation int8
      permission_type int8
""",
    30: """
CreateAcls 1-3 flexible 2
request
  creations []
    resource_type int8
    resource_name string
    resource_pattern_type int8 =3
    principal string
    host string
    operation int8
    permission_type int8
response
  throttle_time_ms int32
  results []
    error_code int16
    error_message string ?
""",
    31: """
DeleteAcls 1-3 flexible 2
request
  filters []
    resource_type_filter int8
    resource_name_filter string ?
    pattern_type_filter int8 =3
    principal_filter string ?
    host_filter string ?
    operation int8
    permission_type int8
response
  throttle_time_ms int32
  filter_results []
    error_code int16
    error_message string ?
    matching_acls []
      error_code int16
      error_message string ?
      resource_type int8
      resource_name string
      pattern_type int8 =3
      principal string
      host string
      operation int8
      permission_type int8
""",
    48: """
DescribeClientQuotas 0-1 flexible 1
request
  components []
    entity_type string
    match_type int8
    match string ?
  strict bool
response
  throttle_time_ms int32
  error_code int16
  error_message string ?
  entries [] ?
    entity []
      entity_type string
      entity_name string ?
    values []
      key string
      value float64
""",
    49: """
AlterClientQuotas 0-1 flexible 1
request
  entries []
    entity []
      entity_type string
      entity_name string ?
    ops []
      key string
      value float64
      remove bool
  validate_only bool
response
  throttle_time_ms int32
  entries []
    error_code int16
    error_message string ?
    entity []
      entity_type string
      entity_name string ?
""",
    50: """
DescribeUserScramCredentials 0-0 flexible 0
request
  users [] ?
    name string
response
  throttle_time_ms int32
  error_code int16
  error_message string ?
  results []
    user string
    error_code int16
    error_message string ?
    credential_infos []
      mechanism int8
      iterations int32
""",
    51: """
AlterUserScramCredentials 0-0 flexible 0
request
  deletions []
    name string
    mechanism int8
  upsertions []
    name string
    mechanism int8
    iterations int32
    salt bytes
    salted_password bytes
response
  throttle_time_ms int32
  results []
    user string
    error_code int16
    error_message string ?
""",
}
