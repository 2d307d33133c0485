"""The messages of consumer groups, in the notation of `schemas.py`."""

from __future__ import annotations

GROUP_DEFINITIONS = {
    8: """
OffsetCommit 2-9 flexible 8
request
  group_id string
  generation_id_or_member_epoch int32 =-1
  member_id string
  group_instance_id string 7+ ? =null
  retention_time_ms int64 2-4 =-1
  topics []
    name string
    partitions []
      partition_index int32
      committed_offset int64
      committed_leader_epoch int32 6+ =-1
      committed_metadata string ?
response
  throttle_time_ms int32 3+
  topics []
    name string
    partitions []
      partition_index int32
      error_code int16
""",
    9: """
OffsetFetch 1-9 flexible 6
request
  group_id string 1-7
  topics [] 1-7 ?2-7
    name string
    partition_indexes [int32]
  groups [] 8+
    group_id string
    member_id string 9+ ? =null
    member_epoch int32 9+ =-1
    topics [] ?
      name string
      partition_indexes [int32]
  require_stable bool 7+
response
  throttle_time_ms int32 3+
  topics [] 1-7
    name string
    partitions []
      partition_index int32
      committed_offset int64
      committed_leader_epoch int32 5-7 =-1
      metadata string ?
      error_code int16
  error_code int16 2-7
  groups [] 8+
    group_id string
    topics []
      name string
      partitions []
        partition_index int32
        committed_offset int64
        committed_leader_epoch int32 =-1
        metadata string ?
        error_code int16
    error_code int16
""",
    11: """
JoinGroup 0-9 flexible 6
request
  group_id string
  session_timeout_ms int32
  rebalance_timeout_ms int32 1+ =-1
  member_id string
  group_instance_id string 5+ ? =null
  protocol_type string
  protocols []
    name string
    metadata bytes
  reason string 8+ ? =null
response
  throttle_time_ms int32 2+
  error_code int16
  generation_id int32 =-1
  protocol_type string 7+ ? =null
  protocol_name string ?7+
  leader string
  skip_assignment bool 9+
  member_id string
  members []
    member_id string
    group_instance_id string 5+ ? =null
    metadata bytes
""",
    12: """
Heartbeat 0-4 flexible 4
request
  group_id string
  generation_id int32
  member_id string
  group_instance_id string 3+ ? =null
response
  throttle_time_ms int32 1+
  error_code int16
""",
    13: """
LeaveGroup 0-5 flexible 4
request
  group_id string
  member_id string 0-2
  members [] 3+
    member_id string
    group_instance_id string ? =null
    reason string 5+ ? =null
response
  throttle_time_ms int32 1+
  error_code int16
  members [] 3+
    member_id string
    group_instance_id string ?
    error_code int16
""",
    14: """
SyncGroup 0-5 flexible 4
request
  group_id string
  generation_id int32
  member_id string
  group_instance_id string 3+ ? =null
  protocol_type string 5+ ? =null
  protocol_name string 5+ ? =null
  assignments []
    member_id string
    assignment bytes
response
  throttle_time_ms int32 1+
  error_code int16
  protocol_type string 5+ ? =null
  protocol_name string 5+ ? =null
  assignment bytes
""",
    15: """
DescribeGroups 0-6 flexible 5
request
  groups [string]
  include_authorized_operations bool 3+
response
  throttle_time_ms int32 1+
  groups []
    error_code int16
    error_message string 6+ ? =null
    group_id string
    group_state string
    protocol_type string
    protocol_data string
    members []
      member_id string
      group_instance_id string 4+ ? =null
      client_id string
      client_host string
      member_metadata bytes
      member_assignment bytes
    authorized_operations int32 3+ =-2147483648
""",
    16: """
ListGroups 0-5 flexible 3
request
  states_filter [string] 4+
  types_filter [string] 5+
response
  throttle_time_ms int32 1+
  error_code int16
  groups []
    group_id string
    protocol_type string
    group_state string 4+
    group_type string 5+
""",
    42: """
DeleteGroups 0-2 flexible 2
request
  groups_names [string]
response
  throttle_time_ms int32
  results []
    group_id string
    error_code int16
""",
    47: """
OffsetDelete 0-0 flexible none
request
  group_id string
  topics []
    name string
    partitions []
      partition_index int32
response
  error_code int16
  throttle_time_ms int32
  topics []
    name string
    partitions []
      partition_index int32
      error_code int16
""",
    68: """
ConsumerGroupHeartbeat 0-1 flexible 0
request
  group_id string
  member_id string
  member_epoch int32
  instance_id string ? =null
  rack_id string ? =null
  rebalance_timeout_ms int32 =-1
  subscribed_topic_names [string] ? =null
  subscribed_topic_regex string 1+ ? =null
  server_assignor string ? =null
  topic_partitions [] ? =null
    topic_id uuid
    partitions [int32]
response
  throttle_time_ms int32
  error_code int16
  error_message string ? =null
  member_id string ? =null
  member_epoch int32
  heartbeat_interval_ms int32
  assignment {} ? =null
    topic_partitions []
      topic_id uuid
      partitions [int32]
""",
    69: """
ConsumerGroupDescribe 0-1 flexible 0
request
  group_ids [string]
  include_authorized_operations bool
response
  throttle_time_ms int32
  groups []
    error_code int16
    error_message string ? =null
    group_id string
    group_state string
    group_epoch int32
    assignment_epoch int32
    assignor_name string
    members []
      member_id string
      instance_id string ? =null
      rack_id string ? =null
      member_epoch int32
      client_id string
      client_host string
      subscribed_topic_names [string]
      subscribed_topic_regex string ? =null
      assignment {}
        topic_partitions []
          topic_id uuid
          topic_name string
          partitions [int32]
      target_assignment {}
        topic_partitions []
          topic_id uuid
          topic_name string
          partitions [int32]
      member_type int8 1+ =-1
    authorized_operations int32 =-2147483648
""",
}
