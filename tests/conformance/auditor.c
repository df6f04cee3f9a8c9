/* What the loader asks of an auditing library, and nothing else. */
unsigned la_version(unsigned version);

__attribute__((visibility("default"))) unsigned la_version(unsigned version)
{
    return version;
}
