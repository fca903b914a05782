"""The prefix index's server side: the Lua function library, and who may call it."""

import hashlib
from collections.abc import Mapping

LIBRARY = """#!lua name=headrace
-- Which cell holds which prefix. Key "hr:p:<hash>" is a hash of cell -> term; key "hr:t:<cell>" is the cell's term.
-- An entry counts only while its term is the cell's own: a new term starts with an empty pool.

local TERM = 'hr:t:'

-- keys: block keys of a prompt, first block first. Returns {cell, blocks, ...}: leading blocks that each cell holds.
local function lookup(keys, args)
  local terms, blocks, holders = {}, {}, nil
  for index, key in ipairs(keys) do
    local entries, still, any = redis.call('HGETALL', key), {}, false
    for at = 1, #entries, 2 do
      local cell = entries[at]
      if holders == nil or holders[cell] then
        if terms[cell] == nil then terms[cell] = redis.call('GET', TERM .. cell) end
        if terms[cell] == entries[at + 1] then
          still[cell], any, blocks[cell] = true, true, index
        end
      end
    end
    if not any then break end
    holders = still
  end
  local answer = {}
  for cell, count in pairs(blocks) do
    answer[#answer + 1] = cell
    answer[#answer + 1] = count
  end
  return answer
end

-- keys: the cell's term key, then stored block keys, then evicted ones. args: cell, term, number of stored keys.
-- Returns 1, or 0 when the cell has a higher term and nothing was changed.
local function apply(keys, args)
  local cell, term, stored = args[1], tonumber(args[2]), tonumber(args[3])
  local held = tonumber(redis.call('GET', keys[1]) or '0')
  if term < held then return 0 end
  if term > held then redis.call('SET', keys[1], args[2]) end
  for at = 2, stored + 1 do redis.call('HSET', keys[at], cell, args[2]) end
  for at = stored + 2, #keys do redis.call('HDEL', keys[at], cell) end
  return 1
end

redis.register_function{function_name = 'hr_lookup', callback = lookup, flags = {'no-writes'}}
redis.register_function{function_name = 'hr_apply', callback = apply}
"""

# Bounded memory: old prefixes are forgotten first. No key expires, so nothing is to be looked for ten times a second.
MEMORY_SETTINGS = ("maxmemory 64mb", "maxmemory-policy allkeys-lru", "hz 1")

# A user may run what its function runs: the server checks the commands inside as well.
_USER_RULES = {
    "tokenizer": "%R~hr:p:* %R~hr:t:* -@all +fcall_ro +hgetall +get",
    "scheduler": "~hr:p:* ~hr:t:* -@all +fcall +get +set +hset +hdel",
    "gateway": "~hr:q:* -@all +fcall +hmget +hset +expire +time",
    "supervisor": "-@all +function|load +ping +info +shutdown",
}


USERS = tuple(_USER_RULES)


def acl_lines(passwords: Mapping[str, str]) -> list[str]:
    """Lines of an ACL file: the default user is off, each named user may do its own job and nothing else.

    `passwords` are by user, of USERS; one without a password cannot come in. Only their SHA-256 goes into the lines.
    """
    lines = ["user default reset off"]
    for user, password in passwords.items():
        digest = hashlib.sha256(password.encode()).hexdigest()
        lines.append(f"user {user} reset on #{digest} resetchannels {_USER_RULES[user]}")
    return lines
