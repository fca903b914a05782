"""On whose behalf a request comes, and how early it may ask to be: the bounds that every service keeps to."""

FIRST_PRIORITY, LAST_PRIORITY = -100, 100  # what a client may ask for; the lower, the earlier
DEFAULT_TENANT = "default"  # of whoever has no key of its own
