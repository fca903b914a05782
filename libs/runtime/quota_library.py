"""The quotas' server side: one Lua function that takes from a key's two buckets, the same as libs/runtime/quota.py."""

QUOTA_KEY = "hr:q:"

QUOTA_LIBRARY = """#!lua name=headrace_quota
-- A key's two buckets. Key "hr:q:<key id>" is a hash: r and t, what is left of requests and tokens; at, when, in s.

-- What is left of one bucket: it fills evenly, within a minute; one without a limit is always full of nothing.
local function filled(left, limit, elapsed)
  if limit == 0 then return 0 end
  if left == nil then return limit end
  return math.min(limit, left + limit / 60 * elapsed)
end

-- keys: the key's hash. args: requests and tokens a minute (0: no limit), requests and tokens to take, 1 to take in any
-- case. Returns {1 when it was taken, thousandths of requests left, thousandths of tokens left}.
local function take(keys, args)
  local most_r, most_t, wanted_r, wanted_t = tonumber(args[1]), tonumber(args[2]), tonumber(args[3]), tonumber(args[4])
  local clock = redis.call('TIME')
  local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
  local held = redis.call('HMGET', keys[1], 'r', 't', 'at')
  local elapsed = math.max(0, now - (tonumber(held[3] or now)))
  local left_r = filled(tonumber(held[1] or nil), most_r, elapsed)
  local left_t = filled(tonumber(held[2] or nil), most_t, elapsed)
  local enough = (most_r == 0 or left_r >= wanted_r) and (most_t == 0 or left_t >= math.min(wanted_t, most_t))
  if enough or args[5] == '1' then
    if most_r > 0 then left_r = math.min(most_r, left_r - wanted_r) end
    if most_t > 0 then left_t = math.min(most_t, left_t - wanted_t) end
    enough = true
  end
  redis.call('HSET', keys[1], 'r', tostring(left_r), 't', tostring(left_t), 'at', string.format('%.6f', now))
  redis.call('EXPIRE', keys[1], 3600)
  return {enough and 1 or 0, math.floor(left_r * 1000), math.floor(left_t * 1000)}
end

redis.register_function{function_name = 'hr_take', callback = take}
"""
