"""Read this machine, one file a subject. Imported as gpudoctor.probes; only gpudoctor.collect imports it."""
