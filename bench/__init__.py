"""Load client, scenarios and spikes."""
